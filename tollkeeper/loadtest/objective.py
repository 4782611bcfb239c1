"""The promise a load test holds answers against: time to first token, and time per further token."""

from dataclasses import dataclass

from contracts.errors import ConfigurationError
from tollkeeper.replay.chat import Outcome


@dataclass(frozen=True, slots=True)
class Objective:
    """An answer keeps it when both its times do; a rate keeps it when at least `attainment` of its answers do.

    `ttft_ms` counts from when the request was due, so that a client that falls behind flatters nobody. `itl_ms`
    bounds an answer's mean time between tokens, as goodput is defined by DistServe (OSDI 2024).
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
        """Judge one answer; one that failed or said nothing keeps no promise."""
        if outcome.error or outcome.first_at is None or outcome.last_at is None:
            return False
        if (outcome.first_at - outcome.due_at) * 1000 > self.ttft_ms:
            return False
        further = (outcome.output_tokens or len(outcome.gaps) + 1) - 1
        return further < 1 or (outcome.last_at - outcome.first_at) * 1000 / further <= self.itl_ms
