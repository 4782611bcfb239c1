"""Recent latency of models, learned while routes use them.

A model that is avoided because its answers are late would stay late forever, because nothing new is learned about it.
So a few requests are sent there as probes, and a probe's result replaces earlier ones.
"""

from collections import OrderedDict
from typing import Final

_WEIGHT: Final = 0.1  # weight of the newest answer in the moving averages: about the last ten
_DEVIATIONS: Final = 2.0  # above the mean: in a normal distribution about one answer in twenty takes longer
_FEW: Final = 3  # with fewer answers nothing is known
# When a late model is probed: at most one in this many of the requests that avoid it, and not more often than
PROBE_EVERY: Final = 20
PROBE_PAUSE_NS: Final = 5_000_000_000  # this; or, if there are fewer requests, after
PROBE_AFTER_NS: Final = 30_000_000_000  # this time without an answer of it.
# A request with its own latency budget is a probe only after this time, in which no other request was one.
STATED_PROBE_AFTER_NS: Final = 300_000_000_000
_MAX_MODELS: Final = 10_000


class _Average:
    """A moving average and its mean deviation, in seconds."""

    __slots__ = ("deviation", "is_replaced", "mean", "seen")

    def __init__(self) -> None:
        self.mean = 0.0
        self.deviation = 0.0
        self.seen = 0
        self.is_replaced = False  # by the next value

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
        self.ttft = _Average()  # of streams, and of engine hosts' answers
        self.per_token = _Average()  # per output token; for complete answers, of their whole time
        self.seen_at_ns = 0
        self.probed_at_ns = 0
        self.left_out = 0  # requests since then that would have gone there
        self.awaits_probe = False

    def replace_by_next(self) -> None:
        """Let the next answer replace everything known."""
        for average in (self.ttft, self.per_token):
            average.is_replaced = average.seen > 0


class PaceBook:
    """Recent latency of each model, by its id. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Pace] = OrderedDict()

    def learn(
        self, model: str, began_ns: int, first_at_ns: int | None, ended_ns: int, output_tokens: int | None
    ) -> None:
        """Add a successful answer to a model's averages. `None`: no token was observed, or the count is unknown."""
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
        """Return whether a request may go to a late model, to check whether it is still late.

        `states_budget`: the request has its own latency budget.
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
        """Record that a request goes to a late model as its probe."""
        pace = self._known.get(model)
        if pace is not None:
            pace.probed_at_ns, pace.left_out, pace.awaits_probe = now_ns, 0, True

    def ttft_seconds(self, model: str) -> float | None:
        """Return the time (s) within which about nineteen of twenty answers start; `None` if too little is known."""
        pace = self._known.get(model)
        return None if pace is None or pace.ttft.seen < _FEW else _upper(pace.ttft)

    def answer_seconds(self, model: str, output_tokens: int, least_seconds: float = 0.0) -> float | None:
        """Return the time (s) of an answer of this many tokens at the model's current speed; `None`: too little is
        known.

        `least_seconds` is the expected wait before it starts, if longer than that of recent answers.
        """
        pace = self._known.get(model)
        if pace is None or pace.per_token.seen < _FEW:
            return None
        begins = pace.ttft.mean if pace.ttft.seen else 0.0
        return max(begins, least_seconds) + pace.per_token.mean * output_tokens


def _upper(average: _Average) -> float:
    return average.mean + _DEVIATIONS * average.deviation
