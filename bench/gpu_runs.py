"""What one workload on a GPU brought: when its tokens came, and the steps behind them."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from algorithms.gpu_time.step_model import StepRow
from bench.gpu_steps import RecordedStep
from contracts.recording.records import StepRecord


@dataclass(slots=True)
class Answer:
    """When one request's tokens came, in seconds of the monotonic clock."""

    asked: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    ended: float = 0.0  # the client heard that nothing more comes

    def add(self, tokens: int, now: float) -> None:
        """Record tokens that came together; there is no time between them."""
        if not self.tokens:
            self.first = now
            self.gaps += [0.0] * (tokens - 1)
        else:
            self.gaps.append(now - self.last)
            self.gaps += [0.0] * (tokens - 1)
        self.tokens += tokens
        self.last = now


@dataclass(slots=True)
class Run:
    """One workload's answers and the steps of its time. `began_ns` and `ended_ns` are Unix time.

    `rows` are what is known of the steps beyond their records, by sequence.
    """

    name: str
    answers: list[Answer]
    steps: list[StepRecord]
    began_ns: int
    ended_ns: int
    rows: Mapping[int, Sequence[StepRow]] = field(default_factory=dict)

    @property
    def wall_seconds(self) -> float:
        """Return the time from the first question to the last answer's end."""
        return max(one.ended for one in self.answers) - min(one.asked for one in self.answers)

    def end_lag_ms(self) -> float:
        """Return the median time from an answer's last token to its end."""
        return 1e3 * statistics.median(one.ended - one.last for one in self.answers)

    @property
    def busy_ns(self) -> int:
        """Sum what the steps took."""
        return sum(step.busy_ns for step in self.steps if step.kind == "step")

    @property
    def tokens_per_second(self) -> float:
        """Return output tokens a second, over the whole run."""
        return sum(one.tokens for one in self.answers) / self.wall_seconds

    def gap_quantile_ms(self, quantile: float) -> float:
        """Return the inter-token latency at a quantile, 0 to 1, of all answers' gaps together."""
        gaps = sorted(gap for one in self.answers for gap in one.gaps)
        return 1e3 * gaps[min(len(gaps) - 1, int(quantile * len(gaps)))] if gaps else 0.0

    def first_quantile_ms(self, quantile: float) -> float:
        """Return the time to first token at a quantile."""
        waits = sorted(one.first - one.asked for one in self.answers)
        return 1e3 * waits[min(len(waits) - 1, int(quantile * len(waits)))] if waits else 0.0

    def recorded(self) -> list[RecordedStep]:
        """Return the steps that computed for someone, as recordings have them; tags are tenants."""
        return recorded(self.steps, self.rows)


def recorded(steps: Iterable[StepRecord], rows: Mapping[int, Sequence[StepRow]]) -> list[RecordedStep]:
    """Turn step records into what attribution is tried on; those that computed for nobody are left out."""
    return [
        RecordedStep(
            sequence=step.sequence,
            busy_ns=step.busy_ns,
            gap_ns=step.gap_ns,
            at_us=step.started_at_ns // 1000,
            rows=tuple(rows.get(step.sequence) or _rows(step)),
            tags=tuple(step.tenants),
        )
        for step in steps
        if step.kind == "step" and step.request_ids
    ]


def _rows(step: StepRecord) -> Iterable[StepRow]:
    """A record does not say how many rows of logits a chunk has; one is as close as it comes."""
    for place, scheduled in enumerate(step.scheduled):
        yield StepRow(
            scheduled,
            step.context[place],
            cached=_at(step.cached, place),
            phase=step.phases[place],
            recompute=_at(step.recompute, place),
            drafted=_at(step.drafted, place),
            accepted=_at(step.accepted, place),
            aborted=bool(_at(step.aborted, place)),
        )


def _at(column: Sequence[int], place: int) -> int:
    return column[place] if column else 0
