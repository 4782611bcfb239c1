"""A model server to call, a sink that remembers, and the loop the data plane runs on."""

from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest

from backends.llm.base import ModelCall
from backends.llm.host.engine_target import EngineTarget
from contracts.api.chat import ChatRequest
from contracts.api.generation import Delta, Result, Vectors
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.serving.configuration import TargetSpec
from gateway.apis.reading import read_chat
from tests.backends.llm.engine_fake import FakeHost
from tests.gateway.model_server import eventually, new_upstream, upstream
from tests.patient_loop import PatientUvloop

__all__ = ["eventually", "new_upstream", "upstream"]  # fixtures


def pytest_asyncio_loop_factories(config, item):
    """The loop that the data plane runs on, which no stall of the machine hurries."""
    return {"uvloop": PatientUvloop}


class MemorySink:
    """Keeps everything a target produces."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.usage_events: list[bytes] = []
        self.deltas: list[Delta] = []
        self.body = b""
        self.reported: tuple[Usage, str] = (UNKNOWN_USAGE, "none")
        self.accounted: Result | None = None
        self.embedded: Vectors | None = None
        self.scored: list[float] | None = None
        self.served_by = ("", "")
        self.flow: tuple[Callable[[], None], Callable[[], None]] | None = None

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        (self.usage_events if is_usage_only else self.events).append(data)
        self.deltas += deltas

    def whole(self, body: bytes) -> None:
        self.body = body

    def native(self) -> None:
        """Accept that the upstream's own body follows; `whole` and `event` keep it as any other."""

    def delta(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def vectors(self, vectors: Vectors) -> None:
        self.embedded = vectors

    def scores(self, scores: list[float]) -> None:
        self.scored = scores

    def served(self, model: str, version: str) -> None:
        self.served_by = (model, version)

    def answered_at(self, tier: str) -> None:
        self.tier = tier

    def account(self, result: Result) -> None:
        self.accounted = result

    def report(self, usage: Usage, count_method: str) -> None:
        self.reported = (usage, count_method)

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.flow = (pause, resume)

    async def drained(self) -> None:
        return

    @property
    def tokens(self) -> int:
        return sum(delta.tokens for delta in self.deltas)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


@pytest.fixture
async def target(host: FakeHost, eventually: Callable) -> AsyncIterator[EngineTarget]:
    """A target at the `host` of the test's own file, once it is ready."""
    made = EngineTarget(TargetSpec("e", "p", "engine", host.url), lambda reference: reference)
    await eventually(lambda: made._host.status().state == "ready")
    yield made
    await made.close()


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def new_sink() -> type[MemorySink]:
    return MemorySink


@pytest.fixture
def call_of() -> Callable[[bytes], ModelCall]:
    """Create a call from a body as an application sends it."""

    def make(body: bytes) -> ModelCall:
        request: ChatRequest = read_chat("application/json", body)
        return ModelCall(UUID(int=7), "/chat/completions", request, body, "acme", "salt")

    return make
