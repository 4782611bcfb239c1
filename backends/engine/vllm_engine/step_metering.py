"""The interface of step metering, with a null implementation."""

from dataclasses import dataclass, field
from typing import Protocol

from algorithms.gpu_time.ledger_clock import Lifecycle
from backends.engine.base import Facts
from backends.engine.step_book import QueueFacts
from contracts.recording.records import GpuShare, StepRecord


@dataclass(frozen=True, slots=True)
class Account:
    """One request's measured usage. `gpu` and `computed_tokens` are `None` if its steps were not measured.

    `computed_tokens` is the number of prompt and answer tokens that were computed or found in the prefix cache.
    """

    gpu: GpuShare | None = None
    computed_tokens: int | None = None
    recompute_tokens: int = 0
    overrun_tokens: int = 0
    wasted_tokens: int = 0


class StepMetering(Protocol):
    """One engine's meter. Every call comes from the thread that steps the engine."""

    engine_args: dict[str, object]  # arguments that vLLM must be started with, by its names

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record that loading, warming up or sleep begins, or with `None` that it ends."""

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record that from `at_ns` on the engine has runnable requests, or none."""

    def begin(self, request_id: bytes, tenant: str, prompt_tokens: int, payer_id: bytes = b"") -> None:
        """Register a request. Step records name it by `payer_id`, if given."""

    def collect(self) -> None:
        """Read what vLLM's workers have written since the last call. Never blocks."""

    def is_settled(self, request_id: bytes) -> bool:
        """Return whether every step of a request that ended has been recorded."""

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        """Return the account of a request that has ended; later steps of it count as overrun."""

    def take(self, *, idle: bool, facts: QueueFacts) -> list[StepRecord]:
        """Return the step records since the last call."""

    def facts(self) -> Facts:
        """Return the meter's counters and gauges."""

    def close(self) -> None:
        """Record the remaining steps, and stop."""


@dataclass(slots=True)
class NoMetering:
    """Measures nothing: every account is unknown."""

    engine_args: dict[str, object] = field(default_factory=dict)

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record nothing."""

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record nothing."""

    def begin(self, request_id: bytes, tenant: str, prompt_tokens: int, payer_id: bytes = b"") -> None:
        """Record nothing."""

    def collect(self) -> None:
        """Do nothing."""

    def is_settled(self, request_id: bytes) -> bool:
        """Return `True`."""
        return True

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        """Return an account without measurements."""
        return Account()

    def take(self, *, idle: bool, facts: QueueFacts) -> list[StepRecord]:
        """Return no records."""
        return []

    def facts(self) -> Facts:
        """Return the fact that metering is off."""
        return {"metering": False}

    def close(self) -> None:
        """Do nothing."""
