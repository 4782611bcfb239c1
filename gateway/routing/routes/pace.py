"""Recent speed of models, learned while routes use it.

A model that is left because its answers come late would stay late for ever, as nothing new is learned of it. So a few
requests are sent there as probes, and what a probe shows replaces what was known.
"""

from collections import OrderedDict
from typing import Final

_WEIGHT: Final = 0.1  # of the newest answer in the moving averages: about the last ten
_DEVIATIONS: Final = 2.0  # above the mean: where answers scatter evenly, about one in twenty takes longer
_FEW: Final = 3  # below so many answers nothing is known
# When a late model is probed: of the requests that leave it out, at most one in so many, and not more often than
PROBE_EVERY: Final = 20
PROBE_PAUSE_NS: Final = 5_000_000_000  # this; or, where there are fewer requests, after
PROBE_AFTER_NS: Final = 30_000_000_000  # this time without an answer of it.
# A request that states a latency budget of its own is a probe only after so long: nobody else has come by then.
STATED_PROBE_AFTER_NS: Final = 300_000_000_000
_MAX_MODELS: Final = 10_000


class _Average:
    """A moving average and how far off it was, in seconds."""

    __slots__ = ("deviation", "is_replaced", "mean", "seen")

    def __init__(self) -> None:
        self.mean = 0.0
        self.deviation = 0.0
        self.seen = 0
        self.is_replaced = False  # by the next

    def add(self, seconds: float) -> None:
        if self.is_replaced:
            self.is_replaced = False
            self.mean, self.deviation, self.seen = seconds, 0.0, _FEW
            return
        self.seen += 1
        weight = max(_WEIGHT, 1 / self.seen)
        off = abs(seconds - self.mean)
        if self.seen > 1:
            self.deviation += max(_WEIGHT, 1 / (self.seen - 1)) * (off - self.deviation)
        self.mean += weight * (seconds - self.mean)


class _Pace:
    __slots__ = ("awaits_probe", "left_out", "per_token", "probed_at_ns", "seen_at_ns", "ttft")

    def __init__(self) -> None:
        self.ttft = _Average()  # of streams, and of engines' answers
        self.per_token = _Average()  # output token; of whole answers all of their time
        self.seen_at_ns = 0
        self.probed_at_ns = 0
        self.left_out = 0  # requests since then that would have gone there
        self.awaits_probe = False

    def replace_by_next(self) -> None:
        """Let the next answer stand for all that is known."""
        for average in (self.ttft, self.per_token):
            average.is_replaced = average.seen > 0


class PaceBook:
    """What is known of each model's pace, by its id. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Pace] = OrderedDict()

    def learn(
        self, model: str, began_ns: int, first_at_ns: int | None, ended_ns: int, output_tokens: int | None
    ) -> None:
        """Record a good answer of a model into its averages. `None`: no token was seen on its way, or none is known."""
        pace = self._known.setdefault(model, _Pace())
        self._known.move_to_end(model)
        if len(self._known) > _MAX_MODELS:
            self._known.popitem(last=False)
        pace.seen_at_ns = ended_ns
        if pace.awaits_probe and began_ns >= pace.probed_at_ns:
            pace.awaits_probe = False
            pace.replace_by_next()
        if first_at_ns is not None:
            pace.ttft.add((first_at_ns - began_ns) / 1e9)
            began_ns = first_at_ns
        if output_tokens:
            pace.per_token.add((ended_ns - began_ns) / 1e9 / output_tokens)

    def leave_out(self, model: str) -> None:
        """Count a request that avoids a model because its answers are late."""
        pace = self._known.get(model)
        if pace is not None:
            pace.left_out += 1

    def is_probe_due(self, model: str, now_ns: int, *, states_budget: bool = False) -> bool:
        """Return whether a request may be led to a late model to see whether it still is.

        `states_budget`: the request states a latency budget of its own.
        """
        pace = self._known.get(model)
        if pace is None:
            return False
        quiet_ns = now_ns - max(pace.seen_at_ns, pace.probed_at_ns)
        if states_budget:
            return quiet_ns >= STATED_PROBE_AFTER_NS
        if quiet_ns >= PROBE_AFTER_NS:
            return True
        return pace.left_out >= PROBE_EVERY - 1 and now_ns - pace.probed_at_ns >= PROBE_PAUSE_NS

    def begin_probe(self, model: str, now_ns: int) -> None:
        """Record that a request is led to a late model as its probe."""
        pace = self._known.get(model)
        if pace is not None:
            pace.probed_at_ns, pace.left_out, pace.awaits_probe = now_ns, 0, True

    def ttft_seconds(self, model: str) -> float | None:
        """Return within which time about nineteen of twenty answers begin; `None` if too little is known."""
        pace = self._known.get(model)
        return None if pace is None or pace.ttft.seen < _FEW else _upper(pace.ttft)

    def answer_seconds(self, model: str, output_tokens: int, least_seconds: float = 0.0) -> float | None:
        """Return how long an answer of the given number of tokens takes at the model's present pace; `None`: too little
        is known.

        `least_seconds` is how long it will wait to begin, where that may be longer than its last answers did.
        """
        pace = self._known.get(model)
        if pace is None or pace.per_token.seen < _FEW:
            return None
        begins = pace.ttft.mean if pace.ttft.seen else 0.0
        return max(begins, least_seconds) + pace.per_token.mean * output_tokens


def _upper(average: _Average) -> float:
    return average.mean + _DEVIATIONS * average.deviation
