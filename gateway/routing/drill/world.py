"""The far side of a drill: targets that all answer, until one provider's do not for a while."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from backends.llm.base import ModelCall, Sink
from backends.llm.http.http_settings import read_timeouts
from contracts.api.generation import Continuation, Result
from contracts.errors import (
    ConfigurationError,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec

Fault = Literal["refused", "error", "limited", "stall"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)

_ANSWER_SECONDS: Final = 0.5
_ERROR_SECONDS: Final = 0.05
_RETRY_AFTER_SECONDS: Final = 5.0
_TIMED: Final = ("openai_http", "litellm")  # kinds with timeouts of their own
_USED: Final = Usage(input_text=1, output_text=1)


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that fails in one way from one moment to another (seconds)."""

    provider: str
    fault: Fault
    from_seconds: float
    until_seconds: float


class DrillTarget:
    """Answers after half a second, unless its provider is out."""

    def __init__(self, spec: TargetSpec, outage: Outage, met: Callable[[], None]) -> None:
        self.spec = spec
        self._outage = outage
        self._met = met

    def can_continue(self, continuation: Continuation) -> bool:
        """Return False: an answer of a drill comes in one piece."""
        return False

    async def count_input(self, call: ModelCall) -> int | None:
        """Leave it open."""
        return None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Answer, or fail as the outage has it."""
        outage, now = self._outage, asyncio.get_running_loop().time()
        if provider_of(self.spec) == outage.provider and outage.from_seconds <= now < outage.until_seconds:
            self._met()
            await self._fail(outage.fault)
        await asyncio.sleep(_ANSWER_SECONDS)
        sink.whole(b"{}")
        return Result(usage=_USED, count_method="exact", finish_reason="stop")

    async def close(self) -> None:
        """Nothing to free."""

    async def _fail(self, fault: Fault) -> None:
        name = self.spec.id
        if fault == "refused":
            raise UpstreamUnreachable(f"target {name!r} cannot be reached: Connection refused")
        if fault == "stall":
            seconds = patience_of(self.spec)
            await asyncio.sleep(seconds)
            raise UpstreamTimeout(f"target {name!r} was silent for {seconds:g} s")
        await asyncio.sleep(_ERROR_SECONDS)
        if fault == "limited":
            raise UpstreamRateLimited(
                f"target {name!r} is limiting the gateway's rate", retry_after_seconds=_RETRY_AFTER_SECONDS
            )
        raise UpstreamError(f"target {name!r} failed with status 500")


def provider_of(spec: TargetSpec) -> str:
    """Return the provider that a target counts to: where none is named, its kind."""
    return spec.provider or spec.kind


def patience_of(spec: TargetSpec) -> float:
    """Return for how many seconds a target may be silent; one without times of its own for as long as by default."""
    if spec.kind not in _TIMED:
        return read_timeouts(TargetSpec(spec.id, spec.pool, spec.kind)).first_byte
    return read_timeouts(spec).first_byte


def named_fault(name: str) -> Fault:
    """Return a fault by its name. Raises ConfigurationError."""
    for fault in FAULTS:
        if fault == name:
            return fault
    raise ConfigurationError(f"there is no fault {name!r}; known: {', '.join(FAULTS)}")
