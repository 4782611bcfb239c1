"""The targets of a drill: all of them answer, except one provider's during the outage."""

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
_TIMED: Final = ("openai_http", "litellm")  # kinds with their own timeouts
_USED: Final = Usage(input_text=1, output_text=1)


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that fails in one way during a period (seconds)."""

    provider: str
    fault: Fault
    from_seconds: float
    until_seconds: float


class DrillTarget:
    """Answers after half a second, unless its provider has an outage."""

    def __init__(self, spec: TargetSpec, outage: Outage, met: Callable[[], None]) -> None:
        self.spec = spec
        self._outage = outage
        self._met = met

    def can_continue(self, continuation: Continuation) -> bool:
        """Return False: an answer in a drill arrives in one piece."""
        return False

    async def count_input(self, call: ModelCall) -> int | None:
        """Return `None`: the count is unknown."""
        return None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Answer, or fail as the outage specifies."""
        outage, now = self._outage, asyncio.get_running_loop().time()
        if provider_of(self.spec) == outage.provider and outage.from_seconds <= now < outage.until_seconds:
            self._met()
            await self._fail(outage.fault)
        await asyncio.sleep(_ANSWER_SECONDS)
        sink.whole(b"{}")
        return Result(usage=_USED, count_method="exact", finish_reason="stop")

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

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
    """Return a target's provider; its kind if it names none."""
    return spec.provider or spec.kind


def patience_of(spec: TargetSpec) -> float:
    """Return the seconds without output after which a target times out; the default if it sets none."""
    if spec.kind not in _TIMED:
        return read_timeouts(TargetSpec(spec.id, spec.pool, spec.kind)).first_byte
    return read_timeouts(spec).first_byte


def named_fault(name: str) -> Fault:
    """Return a fault by its name. Raises ConfigurationError if there is none."""
    for fault in FAULTS:
        if fault == name:
            return fault
    raise ConfigurationError(f"fault {name!r} is unknown; known: {', '.join(FAULTS)}")
