"""How quick models answer, learned from requests while there are routes to be led by it."""

from collections import OrderedDict
from typing import Final

from gateway.life import Attempt

_WEIGHT: Final = 0.1  # of the newest answer in the moving averages: about the last ten
_DEVIATIONS: Final = 2.0  # above the mean: where answers scatter evenly, about one in twenty takes longer
_FEW: Final = 3  # below so many answers nothing is known
_FORGOTTEN_NS: Final = 30_000_000_000  # a model that nothing was led to for so long is given another chance
_MAX_MODELS: Final = 10_000


class _Average:
    """A moving average and how far off it was, in seconds."""

    __slots__ = ("deviation", "mean", "seen")

    def __init__(self) -> None:
        self.mean = 0.0
        self.deviation = 0.0
        self.seen = 0

    def add(self, seconds: float) -> None:
        self.seen += 1
        weight = max(_WEIGHT, 1 / self.seen)
        off = abs(seconds - self.mean)
        if self.seen > 1:
            self.deviation += max(_WEIGHT, 1 / (self.seen - 1)) * (off - self.deviation)
        self.mean += weight * (seconds - self.mean)


class _Pace:
    __slots__ = ("per_token", "seen_at_ns", "ttft")

    def __init__(self) -> None:
        self.ttft = _Average()  # of streams, and of engines' answers
        self.per_token = _Average()  # output token; of whole answers all of their time
        self.seen_at_ns = 0


class PaceBook:
    """What is known of each model's pace, by its id. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Pace] = OrderedDict()

    def learn(self, model: str, attempt: Attempt) -> None:
        """Take a finished attempt into the averages of its model."""
        pace = self._known.setdefault(model, _Pace())
        self._known.move_to_end(model)
        if len(self._known) > _MAX_MODELS:
            self._known.popitem(last=False)
        pace.seen_at_ns = attempt.ended_ns
        first_at, began = attempt.progress.first_at_ns, attempt.began_ns
        if first_at is not None:
            pace.ttft.add((first_at - began) / 1e9)
            began = first_at
        tokens = attempt.result.usage.output_tokens
        if tokens and attempt.error is None:
            pace.per_token.add((attempt.ended_ns - began) / 1e9 / tokens)

    def ttft_seconds(self, model: str, now_ns: int) -> float | None:
        """Give within which time about nineteen of twenty answers begin; `None` where too little is known."""
        pace = self._recent(model, now_ns)
        return None if pace is None or pace.ttft.seen < _FEW else _upper(pace.ttft)

    def answer_seconds(self, model: str, output_tokens: int, now_ns: int, least_seconds: float = 0.0) -> float | None:
        """Give how long an answer of so many tokens takes at the model's present pace; `None`: too little is known.

        `least_seconds` is how long it will wait to begin, where that may be longer than its last answers did.
        """
        pace = self._recent(model, now_ns)
        if pace is None or pace.per_token.seen < _FEW:
            return None
        begins = pace.ttft.mean if pace.ttft.seen else 0.0
        return max(begins, least_seconds) + pace.per_token.mean * output_tokens

    def _recent(self, model: str, now_ns: int) -> _Pace | None:
        pace = self._known.get(model)
        return None if pace is None or now_ns - pace.seen_at_ns > _FORGOTTEN_NS else pace


def _upper(average: _Average) -> float:
    return average.mean + _DEVIATIONS * average.deviation
