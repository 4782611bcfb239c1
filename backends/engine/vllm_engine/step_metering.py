"""The interface of step metering, with a null implementation."""

from dataclasses import dataclass, field
from typing import Protocol

from algorithms.gpu_time.ledger_clock import Lifecycle
from backends.engine.base import Facts
from backends.engine.step_book import QueueFacts
from contracts.recording.records import GpuShare, StepRecord


@dataclass(frozen=True, slots=True)
class Account:
    """What the steps say of one request; `None` if they were not measured.

    `computed_tokens` is how far into its prompt and answer it was computed, prefix hits included.
    """

    gpu: GpuShare | None = None
    computed_tokens: int | None = None
    recompute_tokens: int = 0
    overrun_tokens: int = 0
    wasted_tokens: int = 0


class StepMetering(Protocol):
    """One engine's meter. Every call comes from the thread that steps the engine."""

    engine_args: dict[str, object]  # what vLLM must be started with, by the names of its own arguments

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record that loading, warming up or sleep begins, or with `None` that it ends."""

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether anything could run from now on."""

    def begin(self, request_id: bytes, tenant: str, prompt_tokens: int, payer_id: bytes = b"") -> None:
        """Expect a request in coming steps. Step records name it by `payer_id`, if stated."""

    def collect(self) -> None:
        """Read what vLLM's workers have written since the last call. Never blocks."""

    def is_settled(self, request_id: bytes) -> bool:
        """Return whether every step of a request that ended is known."""

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        """Return the account of a request that has ended; steps it is still in are accounted as overrun."""

    def take(self, *, idle: bool, facts: QueueFacts) -> list[StepRecord]:
        """Return the step records since the last call."""

    def facts(self) -> Facts:
        """Return the meter's counters and gauges."""

    def close(self) -> None:
        """Record what is left, and stop."""


@dataclass(slots=True)
class NoMetering:
    """Measures nothing: every account is unknown."""

    engine_args: dict[str, object] = field(default_factory=dict)

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record nothing."""

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record nothing."""

    def begin(self, request_id: bytes, tenant: str, prompt_tokens: int, payer_id: bytes = b"") -> None:
        """Expect nothing."""

    def collect(self) -> None:
        """Read nothing."""

    def is_settled(self, request_id: bytes) -> bool:
        """Wait for nothing."""
        return True

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        """Return an account without measurements."""
        return Account()

    def take(self, *, idle: bool, facts: QueueFacts) -> list[StepRecord]:
        """Return no records."""
        return []

    def facts(self) -> Facts:
        """Return the message that nothing is measured."""
        return {"metering": False}

    def close(self) -> None:
        """Stop nothing."""
