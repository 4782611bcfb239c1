"""The seam between the gateway and whatever answers: a call, a sink for what it produces, a target."""

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
from contracts.serving.spoken_apis import drops_unknown, speaks


@dataclass(slots=True)
class ModelCall:
    """One request to one target after another. `body` is what the application sent, byte for byte.

    `prepared` is kept from one attempt to the next, so that a prompt is tokenized once however many targets are tried.
    The fields after it are the gateway's own word, which holds above what the request says; where they change nothing,
    `body` goes out as it came. A server over HTTP is told neither `deadline_ns` nor, unless its settings say so,
    `priority`.
    """

    request_id: UUID
    path: str  # below the API's root: "/chat/completions"
    request: AnyRequest
    body: bytes
    tenant: str
    cache_salt: str
    trace_parent: str = ""  # the header `traceparent`, and the next `tracestate`; empty: none is sent
    trace_state: str = ""
    continuation: Continuation | None = None
    prepared: dict[tuple[str, ...], object] = field(default_factory=dict)  # by what it was prepared with
    max_output: int | None = None  # tokens of each choice, at least 1; a continuation's given ones are among them
    reasoning_effort: ReasoningEffort | None = None  # in place of every effort that the request states
    max_thinking: int | None = None  # tokens of reasoning; told to the servers whose settings say in which field
    # What the model's route says where the caller is silent, or pins: `request` says the same, `body` does not.
    set_fields: Mapping[str, object] | None = None
    priority: int = 0  # lower is earlier
    deadline_ns: int | None = None  # on this process's monotonic clock: an engine host ends the request then
    # Told, while a slow client keeps deltas from the sink, how many tokens these hold, and how many of them are
    # reasoning; (0, 0) just before they come. The engine goes on meanwhile, and its output must be paid for.
    on_held: Callable[[int, int], None] | None = None
    takes_whole: bool = False  # a whole reply is good as well, although the request asks for a stream
    booked_as: UUID | None = None  # the request that it is a part of, if any: engines book its work under that id
    # Whether the client has left. If it has, nobody waits for the end, and the account of it may take its time.
    has_client_left: Callable[[], bool] = lambda: False


class DeltaSink(Protocol):
    """What a target needs of a sink where it gives tokens and nothing else."""

    def delta(self, delta: Delta) -> None:
        """Accept a piece of generated output."""

    def account(self, result: Result) -> None:
        """Record the account of a call that raises instead of returning one: cancelled, or failed on the way."""

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register how to hold the producer back while the client is slow."""

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Record what is known of the usage before the end, such as the exact input count."""


class Sink(DeltaSink, Protocol):
    """Accepts what a target produces, as it is produced. Calls never block and never raise for a slow client.

    A target uses either `event` and `whole` (bytes of OpenAI's protocol that go through as they are) or `delta` (tokens
    that the gateway renders).
    """

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Accept one complete server-sent event, with what it carries. Held back where the caller did not ask."""

    def whole(self, body: bytes) -> None:
        """Accept a complete JSON reply."""

    def vectors(self, vectors: Vectors) -> None:
        """Accept embeddings, which the gateway renders."""

    def scores(self, scores: list[float]) -> None:
        """Record how well the texts of each pair go together, which the gateway renders."""

    def native(self) -> None:
        """Note that what follows is in the words of the client's own API, and goes on as it is."""

    def served(self, model: str, version: str) -> None:
        """Record what answers, before any of its answer: the model as it is called there, and which version of it.

        Either is empty if it is not known. Told again where another target answers in the end.
        """

    def answered_at(self, tier: str) -> None:
        """Accept the service tier that the target says it answers at; empty: the standard one."""

    def media_type(self, name: str) -> None:
        """Note of which type the reply is that follows, where that need not be JSON."""

    def piece(self, data: bytes) -> None:
        """Accept a piece of a streamed answer that has no tokens: sound, or an event. `whole` has its end."""

    async def drained(self) -> None:
        """Wait until the client has taken enough to go on."""


class Target(Protocol):
    """One replica. `call` ends with a Result, or raises an UpstreamError; cancelling it stops generation.

    A cancelled call may take up to a second to end, to learn what it used, and then gives it to `Sink.account`.
    """

    spec: TargetSpec

    def can_continue(self, continuation: Continuation) -> bool:
        """Return whether `call` could go on with an answer that another replica began."""

    async def count_input(self, call: ModelCall) -> int | None:
        """Count the input tokens as `call` will; `None` if only the call itself can tell.

        What is prepared for it is kept in `call.prepared`. Raises InvalidRequest, as `call` would.
        """

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Run one request to its end."""

    async def close(self) -> None:
        """Free connections."""


class SendAgain(Exception):
    """A request that was sent at once did no work and may be sent again, as any other is.

    Where there is a `failure`, only if `may` says so; else it has failed with that.
    """

    def __init__(
        self, failure: TollkeeperError | None = None, may: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__()
        self.failure = failure
        self.may = may


class PassingSink(Protocol):
    """What a target needs of a sink where a stream's events go through as they came."""

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None: ...
    def whole(self, body: bytes) -> None: ...
    def report(self, usage: Usage, count_method: CountMethod) -> None: ...
    def served(self, model: str, version: str) -> None: ...
    def answered_at(self, tier: str) -> None: ...
    def relay(self, delta: Delta) -> Callable[[bytes], None] | None: ...


@runtime_checkable
class RenewedTarget(Protocol):
    """A target whose credentials or certificates are read again when they change."""

    @property
    def fault(self) -> str:
        """Return why new ones are not in use and the last still are; empty if none is amiss."""


class PromptBlocks(msgspec.Struct, frozen=True, gc=False):
    """A prompt as its target will cache it: how many tokens, and the public hashes of its full blocks."""

    tokens: int
    block_tokens: int
    hashes: list[int]


class CachingTarget(Target, Protocol):
    """A target that caches prompts by blocks, whose hashes can be told beforehand."""

    async def prompt_blocks(self, call: ModelCall) -> PromptBlocks | None:
        """Return the prompt's blocks, kept for `call`; `None` if that cannot be told now."""


TargetFactory = Callable[[TargetSpec, Callable[[str], str]], Target]
"""Builds a target from its spec and a resolver of `key_ref`s. Raises ConfigurationError on bad settings."""


class KvListener(Protocol):
    """Follows what the caches of engine hosts hold. Hosts are known by their URLs."""

    def on_kv_host(self, url: str, ask: Callable[[str], None]) -> None:
        """Note that a host has introduced itself, or tells of its models again.

        `ask` asks what the cache of one of its models holds, which comes by `on_kv_blocks`.
        """

    def on_kv_events(self, url: str, packed: Sequence[bytes]) -> None:
        """Receive packed KV records, in the order they came."""

    def on_kv_blocks(self, url: str, blocks: KvBlocks) -> None:
        """Receive a part of what a cache holds."""

    def on_kv_refused(self, url: str, model: str, why: str) -> None:
        """Note that a host refused to tell what a cache holds."""

    def on_kv_lost(self, url: str) -> None:
        """Note that a host is gone."""


class EngineRecords(Protocol):
    """Accepts what engine hosts record beside answers: packed records of contracts.recording.records."""

    def take_steps(self, packed: Sequence[bytes]) -> bool:
        """Keep step records for good, all or none; return whether they are kept."""

    def take_kv(self, packed: Sequence[bytes]) -> None:
        """Keep KV events, and looks at GPUs, as far as there is room."""


# Import strings rather than imports: an adapter's libraries load only where a target needs it.
ADAPTERS: Mapping[str, str] = {
    "engine": "backends.llm.host.engine_target:EngineTarget",
    "scripted": "backends.llm.scripted:ScriptedTarget",
    "openai_http": "backends.llm.http.openai_http:OpenAIHttpTarget",
    "litellm": "backends.llm.provider_target:ProviderTarget",
}

_TAKES_MEDIA: Final = "openai_http"  # the kind of target that images, sound and moderations go to


def check_translated(call: ModelCall, spec: TargetSpec) -> None:
    """Raise UnsupportedParameter if a target is to be given a request that it cannot take as it is, nor translated."""
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
        if speaks(spec, native.api):
            return
        if native.refusal is not None:
            raise _refusal_of(native.refusal)
    if refusal is not None and not drops_unknown(spec):
        raise _refusal_of(refusal)


def _refusal_of(error: InvalidRequest) -> UnsupportedParameter:
    return UnsupportedParameter(error.message, param=error.param, code=error.error_code)
