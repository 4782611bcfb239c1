"""The objective of a load test: maximum time to first token and mean inter-token latency."""

from dataclasses import dataclass

from contracts.errors import ConfigurationError
from tollkeeper.replay.chat import Outcome


@dataclass(frozen=True, slots=True)
class Objective:
    """An answer meets it if both its times do; a rate meets it if at least `attainment` (a share) of its answers do.

    `ttft_ms` counts from the time when the request was due, so that a slow client does not improve the result.
    `itl_ms` limits an answer's mean inter-token latency, as in DistServe's definition of goodput (OSDI 2024).
    """

    ttft_ms: float
    itl_ms: float
    attainment: float = 0.9

    def __post_init__(self) -> None:
        if self.ttft_ms <= 0 or self.itl_ms <= 0:
            raise ConfigurationError(f"the SLO's times must be above 0 ms, not {self.ttft_ms:g} and {self.itl_ms:g}")
        if not 0 < self.attainment <= 1:
            raise ConfigurationError(f"attainment is a share above 0 and at most 1, not {self.attainment:g}")

    def is_kept_by(self, outcome: Outcome) -> bool:
        """Return whether an answer meets the objective; failed and empty answers do not."""
        if outcome.error or outcome.first_at is None or outcome.last_at is None:
            return False
        if (outcome.first_at - outcome.due_at) * 1000 > self.ttft_ms:
            return False
        further = (outcome.output_tokens or len(outcome.gaps) + 1) - 1
        return further < 1 or (outcome.last_at - outcome.first_at) * 1000 / further <= self.itl_ms
