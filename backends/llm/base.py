"""The interface between the gateway and models: a call, a sink for its output, a target."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from contracts.api.chat import ReasoningEffort, TranslatedChat
from contracts.api.embedding import TranslatedEmbedding
from contracts.api.generation import Continuation, Delta, Result, Vectors
from contracts.api.media import MediaRequest
from contracts.api.requests import AnyRequest
from contracts.engine.wire import KvBlocks
from contracts.errors import InvalidRequest, TollkeeperError, UnsupportedParameter
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from contracts.serving.configuration import TargetSpec
from contracts.serving.native_apis import drops_unknown, supports_api


@dataclass(slots=True)
class ModelCall:
    """One request, tried at one target after another. `body` is the application's bytes.

    `prepared` is shared by all attempts, so that a prompt is tokenized only once. The fields after it are set by the
    gateway and take precedence over the request; if they change nothing, `body` is sent unchanged. Servers over HTTP
    are not sent `deadline_ns`, nor, unless their settings say so, `priority`.
    """

    request_id: UUID
    path: str  # below the API's root: "/chat/completions"
    request: AnyRequest
    body: bytes
    tenant: str
    cache_salt: str
    trace_parent: str = ""  # the header `traceparent`; empty: not sent
    trace_state: str = ""  # the header `tracestate`
    continuation: Continuation | None = None
    prepared: dict[tuple[str, ...], object] = field(default_factory=dict)  # by tokenizer and other inputs
    max_output: int | None = None  # tokens of each choice, at least 1, including those of a continuation
    reasoning_effort: ReasoningEffort | None = None  # replaces every effort that the request states
    max_thinking: int | None = None  # tokens of reasoning; sent to servers whose settings name the field for it
    # Defaults and fixed values of the model's route. `request` includes them, `body` does not.
    set_fields: Mapping[str, object] | None = None
    priority: int = 0  # lower is earlier
    deadline_ns: int | None = None  # on this process's monotonic clock: an engine host ends the request then
    # Called with the number of tokens, and of reasoning tokens, that are buffered because the client is slow; (0, 0)
    # just before they are delivered. The engine continues meanwhile, and its output is charged.
    on_held: Callable[[int, int], None] | None = None
    takes_whole: bool = False  # whether a whole reply is accepted although the request asks for a stream
    booked_as: UUID | None = None  # the id under which engines record its work, if it is a part of another request
    # Whether the client has disconnected. Then no one waits for the end, and its account may take longer.
    has_client_left: Callable[[], bool] = lambda: False


class DeltaSink(Protocol):
    """The methods of a sink that a target needs if it produces only tokens."""

    def delta(self, delta: Delta) -> None:
        """Process a piece of generated output."""

    def account(self, result: Result) -> None:
        """Record the account of a call that raises instead of returning one, because it was cancelled or failed."""

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register the functions that pause and resume the producer if the client is slow."""

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Record usage that is known before the end, such as the exact input count."""


class Sink(DeltaSink, Protocol):
    """Receives a target's output as it is produced. Calls never block, and never raise because of a slow client.

    A target calls either `event` and `whole` (bytes of OpenAI's protocol, passed on unchanged) or `delta` (tokens that
    the gateway renders).
    """

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Process one complete server-sent event with its parsed deltas. `is_usage_only`: drop it unless the caller
        asked for it.
        """

    def whole(self, body: bytes) -> None:
        """Process a complete JSON reply."""

    def vectors(self, vectors: Vectors) -> None:
        """Process embeddings, which the gateway renders."""

    def scores(self, scores: list[float]) -> None:
        """Process the similarity scores of text pairs, which the gateway renders."""

    def native(self) -> None:
        """Record that what follows is in the format of the client's own API and is passed on unchanged."""

    def served(self, model: str, version: str) -> None:
        """Record the model's name at the target and its version, before any of the answer. Either is empty if unknown.

        Called again if another target answers in the end.
        """

    def answered_at(self, tier: str) -> None:
        """Record the service tier that the target states; empty: the standard one."""

    def media_type(self, name: str) -> None:
        """Record the media type of the reply that follows, if it need not be JSON."""

    def piece(self, data: bytes) -> None:
        """Process a piece of a streamed answer without tokens: audio, or an event. `whole` gets its end."""

    async def drained(self) -> None:
        """Wait until the client has read enough for the producer to continue."""


class Target(Protocol):
    """One replica. `call` returns a Result or raises an UpstreamError; cancelling it stops generation.

    A cancelled call may take up to a second to find out its usage, which it passes to `Sink.account`.
    """

    spec: TargetSpec

    def can_continue(self, continuation: Continuation) -> bool:
        """Return whether `call` can continue an answer that another replica began."""

    async def count_input(self, call: ModelCall) -> int | None:
        """Count the input tokens as `call` will; `None` if only the call itself can determine them.

        Prepared inputs are stored in `call.prepared`. Raises InvalidRequest, as `call` would.
        """

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Run one request to its end."""

    async def close(self) -> None:
        """Close connections."""


class SendAgain(Exception):
    """A request that was sent at once had no effect and may be sent again.

    If `failure` is set, it may be sent again only if `may` returns true; otherwise that is its error.
    """

    def __init__(
        self, failure: TollkeeperError | None = None, may: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__()
        self.failure = failure
        self.may = may


class PassingSink(Protocol):
    """The methods of a sink that a target needs if a stream's events are passed on unchanged."""

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None: ...
    def whole(self, body: bytes) -> None: ...
    def report(self, usage: Usage, count_method: CountMethod) -> None: ...
    def served(self, model: str, version: str) -> None: ...
    def answered_at(self, tier: str) -> None: ...
    def relay(self, delta: Delta) -> Callable[[bytes], None] | None: ...


@runtime_checkable
class RenewedTarget(Protocol):
    """A target whose credentials or certificates are reloaded when they change."""

    @property
    def fault(self) -> str:
        """Return why changed credentials could not be loaded; empty if there is no problem."""


class PromptBlocks(msgspec.Struct, frozen=True, gc=False):
    """A prompt as its target will cache it: number of tokens, and the public hashes of its full blocks."""

    tokens: int
    block_tokens: int
    hashes: list[int]


class CachingTarget(Target, Protocol):
    """A target that caches prompts in blocks whose hashes are known before the call."""

    async def prompt_blocks(self, call: ModelCall) -> PromptBlocks | None:
        """Return the prompt's blocks, stored in `call.prepared`; `None` if they are not known now."""


TargetFactory = Callable[[TargetSpec, Callable[[str], str]], Target]
"""Builds a target from its spec and a resolver of `key_ref`s. Raises ConfigurationError on bad settings."""


class KvListener(Protocol):
    """Follows the contents of engine hosts' caches. Hosts are identified by URL."""

    def on_kv_host(self, url: str, ask: Callable[[str], None]) -> None:
        """Handle a host's hello message, the first or a later one.

        `ask` requests the cached blocks of one of its models, which arrive by `on_kv_blocks`.
        """

    def on_kv_events(self, url: str, packed: Sequence[bytes]) -> None:
        """Process packed KV records in order."""

    def on_kv_blocks(self, url: str, blocks: KvBlocks) -> None:
        """Process a part of a cache's contents."""

    def on_kv_refused(self, url: str, model: str, why: str) -> None:
        """Handle a host's refusal to list a cache's contents."""

    def on_kv_lost(self, url: str) -> None:
        """Handle the loss of a host."""


class EngineRecords(Protocol):
    """Stores the records that engine hosts send besides answers: packed records of contracts.recording.records."""

    def take_steps(self, packed: Sequence[bytes]) -> bool:
        """Write step records to disk, all or none; return whether they are written."""

    def take_kv(self, packed: Sequence[bytes]) -> None:
        """Store KV events and GPU samples if there is room."""


# Import strings instead of imports: an adapter's libraries are loaded only if a target needs them.
ADAPTERS: Mapping[str, str] = {
    "engine": "backends.llm.host.engine_target:EngineTarget",
    "scripted": "backends.llm.scripted:ScriptedTarget",
    "openai_http": "backends.llm.http.openai_http:OpenAIHttpTarget",
    "litellm": "backends.llm.provider_target:ProviderTarget",
}

_TAKES_MEDIA: Final = "openai_http"  # the kind of target that supports images, audio and moderations


def check_translated(call: ModelCall, spec: TargetSpec) -> None:
    """Raise UnsupportedParameter if a target supports a request neither in its own API nor translated."""
    request = call.request
    if isinstance(request, MediaRequest) and spec.kind != _TAKES_MEDIA:
        raise UnsupportedParameter(
            f"{request.model!r} is served by targets without images, sound and moderations; ask for a model at a "
            f"target of kind {_TAKES_MEDIA}",
            param="model",
        )
    if not isinstance(request, TranslatedChat | TranslatedEmbedding):
        return
    native, refusal = request.native, request.unless_dropped
    if native is not None:
        if supports_api(spec, native.api):
            return
        if native.refusal is not None:
            raise _refusal_of(native.refusal)
    if refusal is not None and not drops_unknown(spec):
        raise _refusal_of(refusal)


def _refusal_of(error: InvalidRequest) -> UnsupportedParameter:
    return UnsupportedParameter(error.message, param=error.param, code=error.error_code)
