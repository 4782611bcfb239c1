"""Decides whether a candidate may replace an incumbent: each measure with its bound, interval and verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from analytics.comparison.interval import Interval
from analytics.comparison.intervals import mean, mean_ratio, share, share_difference
from analytics.comparison.pairs import Answer, Pair

Verdict = Literal["ok", "worse", "unknown"]
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that a candidate must meet; `None`: no bound.

    Shares are 0 to 1; `max_logprob_drop` is in nats per token; ratios are candidate over incumbent.
    """

    min_answered: float | None = 0.99
    min_exact_match: float | None = None
    min_token_agreement: float | None = 0.5
    max_logprob_drop: float | None = 0.05
    min_similarity: float | None = 0.8
    max_refusal_increase: float | None = 0.02
    min_length_ratio: float | None = 0.8
    max_length_ratio: float | None = 1.25
    max_ttft_ratio: float | None = 1.5
    max_inter_token_ratio: float | None = 1.5
    max_duration_ratio: float | None = 1.5
    max_cost_ratio: float | None = 1.25


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure and its bound. The interval is `None` if the measure could not be computed."""

    name: str
    interval: Interval | None
    bound: str
    verdict: Verdict
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return the values as JSON types."""
        told = None if self.interval is None else self.interval.as_json()
        return {
            "name": self.name,
            "bound": self.bound,
            "verdict": self.verdict,
            "reason": self.reason,
            "interval": told,
        }


@dataclass(frozen=True, slots=True)
class GateReport:
    """The result over all prompts. `is_judged`: the incumbent answered enough prompts for a verdict."""

    candidate: str
    incumbent: str
    prompts: int
    compared: int
    measures: tuple[Measure, ...]
    failures: tuple[str, ...]  # error codes of the incumbent's failures

    @property
    def is_judged(self) -> bool:
        """Return whether there were enough answers for a verdict."""
        return self.compared > 0 or any(measure.verdict == "worse" for measure in self.measures)

    @property
    def is_passed(self) -> bool:
        """Return whether the candidate may replace the incumbent."""
        return self.is_judged and all(measure.verdict != "worse" for measure in self.measures)

    def as_json(self) -> dict[str, object]:
        """Return the values as JSON types."""
        return {
            "candidate": self.candidate,
            "incumbent": self.incumbent,
            "passed": self.is_passed,
            "judged": self.is_judged,
            "prompts": self.prompts,
            "compared": self.compared,
            "measures": [measure.as_json() for measure in self.measures],
            "incumbent_failures": list(self.failures),
        }


def judge(
    candidate: str, incumbent: str, pairs: Sequence[Pair], bounds: Bounds, *, is_strict: bool = False
) -> GateReport:
    """Compare a candidate's answers with the bounds and return the report.

    Measures of content are compared by their value, however wide the interval is. Times and cost vary between runs, so
    they fail only if the whole interval is beyond the bound. `is_strict`: the whole interval of every measure must be
    within the bound.
    """
    usable = [pair for pair in pairs if not pair.incumbent.error]
    both = [pair for pair in usable if pair.is_complete]
    said = _Judging(is_strict=is_strict, by_interval=False)
    measured = _Judging(is_strict=is_strict, by_interval=True)
    measures = [
        said.least("answered", share(len(both), len(usable)), bounds.min_answered),
        said.least("exact match", share(sum(pair.is_same for pair in both), len(both)), bounds.min_exact_match),
        said.least(
            "token agreement", mean(_known(both, lambda pair: pair.token_agreement)), bounds.min_token_agreement
        ),
        said.most("log-probability drop", mean(_known(both, lambda pair: pair.logprob_drop)), bounds.max_logprob_drop),
        said.least("similarity", mean(_known(both, lambda pair: pair.similarity)), bounds.min_similarity),
        measured.most("refusal increase", _refusals(both), bounds.max_refusal_increase),
        said.least("length ratio", _ratio(both, _length), bounds.min_length_ratio),
        said.most("length ratio", _ratio(both, _length), bounds.max_length_ratio),
        measured.most("ttft ratio", _ratio(both, lambda answer: answer.ttft_seconds), bounds.max_ttft_ratio),
        measured.most(
            "inter-token ratio", _ratio(both, lambda answer: answer.inter_token_seconds), bounds.max_inter_token_ratio
        ),
        measured.most(
            "duration ratio", _ratio(both, lambda answer: answer.duration_seconds), bounds.max_duration_ratio
        ),
        measured.most("cost ratio", _ratio(both, lambda answer: answer.cost_usd), bounds.max_cost_ratio),
    ]
    failures = sorted({pair.incumbent.error for pair in pairs if pair.incumbent.error})[:_MOST_NAMED]
    return GateReport(candidate, incumbent, len(pairs), len(both), tuple(measures), tuple(failures))


class _Judging:
    def __init__(self, *, is_strict: bool, by_interval: bool) -> None:
        self._is_strict = is_strict
        self._by_interval = by_interval

    def least(self, name: str, found: Interval | None, bound: float | None) -> Measure:
        if found is None or bound is None:
            return _untold(name, found, bound, "at least")
        end = found.low if self._is_strict else found.high if self._by_interval else found.value
        return _told(name, found, f"at least {bound:g}", is_kept=end >= bound)

    def most(self, name: str, found: Interval | None, bound: float | None) -> Measure:
        if found is None or bound is None:
            return _untold(name, found, bound, "at most")
        end = found.high if self._is_strict else found.low if self._by_interval else found.value
        return _told(name, found, f"at most {bound:g}", is_kept=end <= bound)


def _told(name: str, found: Interval, bound: str, *, is_kept: bool) -> Measure:
    figures = f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g}, of {found.count})"
    reason = f"{name} is {figures}; {bound} is asked" + ("" if is_kept else ", and it is not kept")
    return Measure(name, found, bound, "ok" if is_kept else "worse", reason)


def _untold(name: str, found: Interval | None, bound: float | None, side: str) -> Measure:
    if bound is None:
        return Measure(name, found, "none", "ok", f"{name} is not judged")
    return Measure(name, None, f"{side} {bound:g}", "unknown", f"{name} could not be told")


def _known(pairs: Sequence[Pair], read: Callable[[Pair], float | None]) -> list[float]:
    return [value for pair in pairs if (value := read(pair)) is not None]


def _ratio(pairs: Sequence[Pair], read: Callable[[Answer], float | None]) -> Interval | None:
    told = [(read(pair.candidate), read(pair.incumbent)) for pair in pairs]
    known = [(new, old) for new, old in told if new is not None and old is not None]
    return mean_ratio([new for new, _ in known], [old for _, old in known], is_paired=True)


def _length(answer: Answer) -> float | None:
    return None if answer.output_tokens is None else float(answer.output_tokens)


def _refusals(pairs: Sequence[Pair]) -> Interval | None:
    new = sum(pair.candidate.is_refusal for pair in pairs)
    return share_difference((new, len(pairs)), (sum(pair.incumbent.is_refusal for pair in pairs), len(pairs)))
