"""The engine wire protocol: messages between a gateway and an engine host over a socket.

A frame is a little-endian u32 length and one msgpack array that starts with the message's name. Fields are only
appended, with defaults; `WIRE_VERSION` changes when an old peer could misunderstand a message. Times are the host's
monotonic clock in nanoseconds; on one Linux machine all processes share that clock.

The host sends first (`Hello`). The gateway submits, aborts, embeds and queries; answers contain the id of their
request. The host keeps step records until the gateway acknowledges them, so that a gateway that dies loses none; they
go to one gateway at a time, the one connected longest that asked for them.

A provider host uses the same protocol. It serves no models: its hello names the operations that it offers, and it is
called by `Invoke`. A peer that does not know these messages never receives them, because they go only to a host that
has named the operation.
"""

from typing import Final, Literal

import msgspec

from contracts.engine.frame_splitter import LENGTH_BYTES
from contracts.engine.kept_prefix import KeptPrefix
from contracts.errors import InvalidRecord
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import GpuShare

WIRE_VERSION: Final = 1

FinishReason = Literal["stop", "length", "abort", "error", "tool_calls"]
ModelState = Literal["loading", "warming", "ready", "draining", "failed"]
Verb = Literal[
    "load", "unload", "load_adapter", "unload_adapter", "drain", "health", "stats", "sleep", "wake", "swap", "kv_blocks"
]
GrammarKind = Literal["json_schema", "json_object", "regex", "lark", "choice"]


class _Message(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    pass


class Sampling(_Message, frozen=True):
    """How tokens are sampled. Defaults are OpenAI's, not greedy; `seed` `None` means not reproducible."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    n: int = 1
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: list[int] = []
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None  # number of alternatives reported with a token; 0: only the token itself


class Grammar(_Message, frozen=True):
    """What the output must match. `text` is the schema, expression, grammar, or a JSON array of choices."""

    kind: GrammarKind
    text: str


class Image(_Message, frozen=True):
    """An image of the prompt: bytes as sent, and their SHA-256, by which prefix blocks distinguish images."""

    data: bytes
    sha256: bytes


class TokenLogprob(_Message, frozen=True):
    """One generated token's log probability and the most likely alternatives, in natural logarithms."""

    token_id: int
    text: str
    logprob: float
    top: list[tuple[int, str, float]] = []


class ModelHello(_Message, frozen=True):
    """A model as its host serves it. Hashes are SHA-256 in hex; the tokenizer itself is a tokenizer.json."""

    id: str
    kind: Literal["generate", "embed"] = "generate"
    state: ModelState = "ready"
    progress: float = 1.0  # of loading, 0 to 1
    weights_hash: str = ""
    tokenizer_hash: str = ""
    template_hash: str = ""
    tokenizer: bytes = b""
    chat_template: str = ""
    special_tokens: dict[str, str] = {}  # for the template: bos_token, eos_token, ...
    eos_token_ids: list[int] = []
    context_tokens: int = 0
    block_size: int = 0
    kv_blocks: int = 0
    vocabulary: int = 0
    dimensions: int = 0  # of embeddings
    adapters: list[str] = []
    accepts_images: bool = False


# Messages from the host.


class Hello(_Message, frozen=True, tag="hello"):
    """The first frame of a connection, sent again when a model is loaded, unloaded or changes state."""

    version: int
    engine: str  # unique for each start of a host
    engine_kind: str  # "torch", "vllm"
    engine_version: str
    models: list[ModelHello]
    clock_ns: int  # the host's monotonic clock now
    wall_ns: int  # Unix time now
    operations: list[str] = []  # a provider host's, as paths below OpenAI's root; empty: it accepts no new requests
    tells_blocks: bool = False  # it answers the call `kv_blocks`


class Delta(_Message, frozen=True, tag="delta"):
    """What one step added to one choice. `times_ns` has one entry per token id.

    Text may lag behind tokens (an unfinished UTF-8 sequence, a possible stop string) and arrives with a later one.
    """

    request_id: bytes
    index: int = 0
    token_ids: list[int] = []
    times_ns: list[int] = []
    content: str = ""
    reasoning: str = ""
    tool_calls: bytes = b""  # JSON, in OpenAI's streaming shape
    logprobs: list[TokenLogprob] = []
    cached_tokens: int | None = None  # on a request's first delta
    finish_reason: FinishReason | None = None  # this choice has ended
    stop: str = ""  # the stop string that ended it


class Finished(_Message, frozen=True, tag="final"):
    """The end of a request: every choice has ended, or it failed. Usage counts all choices, including cut ones."""

    request_id: bytes
    finish_reason: FinishReason
    usage: Usage = UNKNOWN_USAGE
    gpu: GpuShare | None = None
    recompute_tokens: int = 0
    overrun_tokens: int = 0  # computed after the end was decided (asynchronous scheduling)
    wasted_tokens: int = 0  # rejected drafts
    queue_ns: int | None = None
    prefill_ns: int | None = None
    error_code: str = ""
    error_message: str = ""
    cold_start_ns: int | None = None  # how long it waited for its model to wake or load


class Embedded(_Message, frozen=True, tag="embedded"):
    """Vectors of an embed request: float32, little-endian, one after another."""

    request_id: bytes
    dimensions: int = 0
    vectors: bytes = b""
    input_tokens: int = 0
    gpu: GpuShare | None = None
    error_code: str = ""
    error_message: str = ""


class Chunk(_Message, frozen=True, tag="chunk"):
    """A piece of a provider's answer: one server-sent event in OpenAI's shape, or the whole body."""

    request_id: bytes
    data: bytes


class Invoked(_Message, frozen=True, tag="invoked"):
    """The end of an invocation. `usage` is OpenAI's usage object as JSON, as far as the provider reported it.

    `error_kind` is the code of the error's class (contracts.errors), `error_code` that of this error. `upstream_status`
    is the status of the provider's own answer, `None` if it sent none; `is_unsent` means that the request never reached
    the provider.
    """

    request_id: bytes
    usage: bytes = b""
    error_kind: str = ""
    error_code: str = ""
    error_message: str = ""
    param: str = ""
    retry_after_seconds: float | None = None
    upstream_status: int | None = None
    is_unsent: bool = False


class Steps(_Message, frozen=True, tag="steps"):
    """Packed step records (contracts.recording.records), in order; acknowledged up to the last one's sequence."""

    records: list[bytes]
    last_sequence: int


class KvEvents(_Message, frozen=True, tag="kv"):
    """Packed KV records. May be dropped under load: their `sequence` shows a gap."""

    records: list[bytes]


class KvBlocks(_Message, frozen=True, tag="kv_blocks"):
    """The content of a model's cache, in parts, for the gateway that called `kv_blocks`; KV records from `sequence` on
    report changes.
    """

    model: str
    engine: str
    sequence: int
    block_size: int
    block_hashes: list[int]
    is_last: bool = True


class Devices(_Message, frozen=True, tag="devices"):
    """Packed readings of the host's GPUs, for the gateway that gets step records, if it wants them. May be dropped."""

    records: list[bytes]


class Answer(_Message, frozen=True, tag="answer"):
    """The answer to a call, as plain data."""

    call_id: int
    ok: bool = True
    error_code: str = ""
    error_message: str = ""
    facts: dict[str, float | int | str | bool | None] = {}


# Messages from the gateway.


class Attach(_Message, frozen=True, tag="attach"):
    """The gateway's first frame: its name, and whether it accepts step records and KV events."""

    version: int
    gateway: str
    wants_steps: bool = True
    wants_kv: bool = True
    wants_devices: bool = False


class Submit(_Message, frozen=True, tag="submit"):
    """Generate. `generated_ids` continues an answer that another replica started: they count as output already
    generated.

    `tokenizer_hash` and `template_hash` identify what the gateway rendered with; a host with others refuses the
    request.
    """

    request_id: bytes
    model: str
    token_ids: list[int]
    sampling: Sampling
    generated_ids: list[int] = []
    images: list[Image] = []
    stop: list[str] = []
    grammar: Grammar | None = None
    adapter: str = ""
    priority: int = 0  # lower is earlier
    cache_salt: str = ""
    tenant: str = ""
    deadline_ns: int | None = None
    tokenizer_hash: str = ""
    template_hash: str = ""
    tools: bytes = b""  # JSON; if present, tool calls are parsed from the output
    parse_reasoning: bool = True
    tool_choice: str = ""  # "required", or "function:" and a name: any tool, or this one, must be called
    kept_prefixes: list[KeptPrefix] = []  # shortest first; a host that cannot pin prefixes ignores them
    booked_as: bytes = b""  # the request that step records name in place of this id; zeros: none, the host's own work

    @property
    def payer_id(self) -> bytes:
        """Return the id that step records charge for this request's time and tokens."""
        return self.booked_as or self.request_id


class Embed(_Message, frozen=True, tag="embed"):
    """Embed inputs, each as token ids."""

    request_id: bytes
    model: str
    inputs: list[list[int]]
    dimensions: int | None = None
    tenant: str = ""
    tokenizer_hash: str = ""


class ProviderTimeouts(_Message, frozen=True):
    """How long a provider may take, in seconds: to accept a connection, to start, between two pieces, in total."""

    connect: float
    first_byte: float
    between: float
    total: float


class Invoke(_Message, frozen=True, tag="invoke"):
    """Call a hosted provider. `body` is the request in OpenAI's JSON; its model is the name that the host's library
    uses.

    Credentials are not sent: `key_ref` and `credentials`, by the library's parameter, name where the host finds them.
    """

    request_id: bytes
    operation: str  # one of the hello's
    body: bytes
    patience: ProviderTimeouts
    url: str = ""  # replaces the provider's own
    key_ref: str = ""
    credentials: dict[str, str] = {}
    parameters: bytes = b""  # a JSON object: the target's settings for the library


class Hold(_Message, frozen=True, tag="hold"):
    """Stop reading a provider's answer because its client is slow, or continue."""

    request_id: bytes
    is_held: bool


class Abort(_Message, frozen=True, tag="abort"):
    """Stop a request. Its `Finished` or `Invoked` still arrives, with its usage."""

    request_id: bytes


class StepsAck(_Message, frozen=True, tag="steps_ack"):
    """The gateway has stored step records up to this sequence on its disk."""

    sequence: int


class Call(_Message, frozen=True, tag="call"):
    """Call an operation of the host that has one answer."""

    call_id: int
    verb: Verb
    model: str = ""
    path: str = ""
    options: dict[str, float | int | str | bool | None] = {}


FromHost = Hello | Delta | Finished | Embedded | Chunk | Invoked | Steps | KvEvents | KvBlocks | Devices | Answer
FromGateway = Attach | Submit | Embed | Invoke | Hold | Abort | StepsAck | Call


_encoder: Final = msgspec.msgpack.Encoder()
_host_decoder: Final[msgspec.msgpack.Decoder[FromHost]] = msgspec.msgpack.Decoder(FromHost)
_gateway_decoder: Final[msgspec.msgpack.Decoder[FromGateway]] = msgspec.msgpack.Decoder(FromGateway)


def frame(message: FromHost | FromGateway) -> bytes:
    """Encode a message, preceded by its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def from_host(body: bytes) -> FromHost:
    """Decode a host's message. Raises InvalidRecord."""
    try:
        return _host_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRecord(f"an engine host's message cannot be read: {error}") from error


def from_gateway(body: bytes) -> FromGateway:
    """Decode a gateway's message. Raises InvalidRecord."""
    try:
        return _gateway_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRecord(f"a gateway's message cannot be read: {error}") from error
