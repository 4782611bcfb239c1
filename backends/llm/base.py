"""The seam between the gateway and whatever answers: a call, a sink for what it produces, a target."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from contracts.chat import ChatRequest
from contracts.configuration import TargetSpec
from contracts.generation import Delta, Result
from contracts.records import CountMethod
from contracts.usage import Usage


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to one target. `body` is what the application sent, byte for byte."""

    request_id: UUID
    path: str  # below the API's root: "/chat/completions"
    request: ChatRequest
    body: bytes
    tenant: str
    cache_salt: str
    trace_parent: str = ""


class Sink(Protocol):
    """Takes what a target produces, as it is produced. Calls never block and never raise for a slow client.

    A target uses either `event` and `whole` (bytes of OpenAI's protocol that go through as they are) or `delta`
    (tokens that the gateway renders).
    """

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Take one complete server-sent event, with what it carries. Held back where the caller did not ask."""

    def whole(self, body: bytes) -> None:
        """Take a complete JSON reply."""

    def delta(self, delta: Delta) -> None:
        """Take a piece of generated output."""

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Take what is known of the usage before the end, such as the exact input count."""

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register how to hold the producer back while the client is slow."""

    async def drained(self) -> None:
        """Wait until the client has taken enough to go on."""


class Target(Protocol):
    """One replica. `call` ends with a Result, or raises an UpstreamError; cancelling it stops generation."""

    spec: TargetSpec

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Run one request to its end."""

    async def close(self) -> None:
        """Free connections."""


TargetFactory = Callable[[TargetSpec, Callable[[str], str]], Target]
"""Builds a target from its spec and a resolver of `key_ref`s. Raises ConfigurationError on bad settings."""

# Import strings rather than imports: an adapter's libraries load only where a target needs it.
TARGET_KINDS: Mapping[str, str] = {
    "scripted": "backends.llm.scripted:ScriptedTarget",
    "openai_http": "backends.llm.openai_http:OpenAIHttpTarget",
}
