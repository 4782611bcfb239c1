"""The records: one per request, further attempt, engine step, KV event and GPU reading.

Packed, a record is one msgpack array that starts with its kind and schema version ("request.1"). Fields are only
appended, with a default: an older reader skips unknown ones, a newer one fills in defaults. Times are Unix nanoseconds
(UTC), durations nanoseconds, money integer pico-USD, `None` means not reported. Invalid values (an id of other than 16
bytes, a negative duration, lists of different lengths) are refused when records are read, by `decode_record`: building
one is on the request path and checks nothing. Names of table columns and `gen_ai.*` attributes are in
`contracts/recording/names.py`.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contracts.access.identity import ANONYMOUS, Identity
from contracts.errors import InvalidRecord, InvalidUsage
from contracts.metering.gaps import check_gaps
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import CostBasis

Outcome = Literal["ok", "error", "cancelled", "rejected"]
GapClock = Literal["engine", "gateway", "none"]
CountMethod = Literal["exact", "reported", "estimate", "none"]
AttemptReason = Literal["first", "retry", "fallback", "hedge", "shadow", "continuation", "escalation"]
StepKind = Literal["step", "idle", "load", "warmup", "sleep", "dead", "lost"]
Arm = Literal["", "incumbent", "candidate", "shadow"]
GapCause = Literal["host", "idle", "lifecycle", "unknown"]
KvEvent = Literal["stored", "removed", "cleared"]

LOST_IN_CRASH: Final = "lost_in_crash"  # error code of a request without its own record because its gateway died

RequestId = Annotated[bytes, Meta(min_length=16, max_length=16)]  # UUIDv7
Nanoseconds = Annotated[int, Meta(ge=0)]  # a duration


class GpuShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The GPU time charged to one request, by phase, and how it was determined."""

    prefill_ns: Nanoseconds = 0
    decode_ns: Nanoseconds = 0
    recompute_ns: Nanoseconds = 0
    wasted_ns: Nanoseconds = 0
    kv_block_seconds: float = 0.0
    method: str = ""  # e.g. "steptime-as/1"
    confidence: float | None = None  # 0 to 1


class RequestRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="request.1", kw_only=True):
    """One request as the gateway saw it, from admission to settlement.

    `gaps` holds N-1 entries for N output tokens, in 10 us units, packed by `pack_gaps`; tokens that arrived in one
    chunk have zeros between them. `attempts` counts attempts; a request that succeeded at the first has no attempt
    records.
    """

    request_id: RequestId
    started_at_ns: int
    duration_ns: Nanoseconds
    who: Identity = ANONYMOUS
    operation: str = "chat"  # gen_ai.operation.name
    api: str = ""  # the path's name: "chat.completions", "embeddings", ...
    outcome: Outcome = "ok"
    status: int = 200
    error_code: str = ""
    finish_reason: str = ""
    stream: bool = False

    requested_model: str = ""
    route: str = ""
    model: str = ""  # the one that served it
    model_version: str = ""
    provider: str = ""
    pool: str = ""
    replica: str = ""
    adapter: str = ""
    region: str = ""
    gateway: str = ""  # name of the gateway process

    ttft_ns: Nanoseconds | None = None
    admission_ns: Nanoseconds | None = None
    queue_ns: Nanoseconds | None = None
    gaps: bytes = b""
    gap_clock: GapClock = "none"

    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    engine_output_tokens: int | None = None
    recompute_tokens: int | None = None
    overrun_tokens: int | None = None
    wasted_tokens: int | None = None

    cost_pico_usd: int | None = None
    cost_basis: CostBasis = "unpriced"
    price_version: str = ""
    charged_pico_usd: int | None = None
    gpu: GpuShare | None = None

    attempts: int = 1
    max_tokens: int | None = None
    choices: int = 1
    temperature: float | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    cache: str = ""  # "", "hit", "miss", "semantic_hit"
    limit: str = ""  # the limit that refused or clipped it
    reserved_tokens: int | None = None
    verdicts: list[str] = []
    route_decision: str = ""  # JSON: policy, candidates, predictions

    trace_id: bytes = b""
    span_id: bytes = b""
    run_id: str = ""
    conversation_id: str = ""
    prompt_name: str = ""
    prompt_version: str = ""
    tool_calls: int | None = None
    schema_failed: bool | None = None

    priority: str = ""  # class: "interactive", "standard", "batch"
    wait_ns: Nanoseconds | None = None  # in the gateway's queue for the pool
    # Tokens as charged against limits, after settlement: when (from the start), and how many. One entry for the
    # reservation at admission and one for each extension.
    charge_offsets_ns: list[Nanoseconds] = []
    charge_tokens: list[int] = []
    overdraft_tokens: int | None = None  # usage that could not be charged
    cold_start_ns: Nanoseconds | None = None  # how long it waited for its model to wake or load
    arm: Arm = ""  # of its rollout, if any
    rollout: str = ""
    guard_ns: Nanoseconds | None = None  # time of guardrails before admission; none: none covers it
    guard_held_ns: Nanoseconds | None = None  # longest time that they held back a piece of its answer
    unpriced_leaves: list[str] = []  # used kinds of tokens without a price on the price card; the rest is billed
    service_tier: str = ""  # the provider's tier at which it was priced: "flex", "priority", ...; "": the standard one
    overdraft_pico_usd: int | None = None  # cost that budgets could not be charged
    thinking_over_tokens: int | None = None  # reasoning tokens beyond the key's cap; none: no cap, or it was kept
    upstream_status: int | None = None  # HTTP status of the last target's answer if it failed; none: no answer
    upstream_error: str = ""  # that answer's error type, in the target's words: "server_error"
    upstream_message: str = ""  # that answer's message, without the caller's text, addresses and paths
    tools: list[str] = []  # called by the answer, in order, at most 64; for a tool call: the tool
    tool_marks: list[int] = []  # a checksum of each of these calls: equal for the same tool and arguments
    # Checksums of the prompt's parts: its tools, its instructions, then each message. Only for sessions of agents.
    prompt_marks: list[int] = []
    provider_usage: str = ""  # the usage object as reported by a target that speaks the client's own API, as JSON


class AttemptRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="attempt.1", kw_only=True):
    """One attempt at a target, written if a request took more than one.

    Number 0 is not an attempt: it is what an engine host computed for a request whose gateway disconnected before it
    was settled.
    """

    request_id: RequestId
    number: int  # from 1; 0: see above
    started_at_ns: int
    duration_ns: Nanoseconds
    who: Identity = ANONYMOUS
    reason: AttemptReason = "first"
    outcome: Outcome = "ok"
    status: int = 0
    error_code: str = ""
    model: str = ""
    provider: str = ""
    pool: str = ""
    replica: str = ""
    region: str = ""
    gateway: str = ""
    ttft_ns: Nanoseconds | None = None
    gaps: bytes = b""
    gap_clock: GapClock = "none"
    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    cost_pico_usd: int | None = None
    cost_basis: CostBasis = "unpriced"
    price_version: str = ""
    gpu: GpuShare | None = None
    run_id: str = ""
    upstream_status: int | None = None  # as on a request's record
    upstream_error: str = ""
    upstream_message: str = ""


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="step.1", kw_only=True):
    """One engine step, or one period of a lifecycle state, on one engine host.

    `sequence` has no holes within an `engine`: a hole is a loss. The lists from `request_ids` on run in parallel, one
    entry per request in the step; a list is empty if it was not measured or is zero for all. `gpu_ns` sums to `busy_ns`
    exactly if `method` is set.
    """

    engine: str
    sequence: int
    started_at_ns: int
    busy_ns: Nanoseconds
    gap_ns: Nanoseconds = 0
    kind: StepKind = "step"
    gap_cause: GapCause = "unknown"
    forward_ns: Nanoseconds | None = None
    rank_skew_ns: Nanoseconds | None = None
    model: str = ""
    replica: str = ""
    gateway: str = ""
    devices: list[str] = []
    ranks: int = 1
    running: int | None = None
    waiting: int | None = None
    kv_blocks_used: int | None = None
    kv_blocks_total: int | None = None
    method: str = ""
    fit_version: str = ""
    confidence: float | None = None
    request_ids: list[RequestId] = []
    tenants: list[str] = []
    scheduled: list[int] = []
    context: list[int] = []
    cached: list[int] = []
    phases: list[int] = []  # 0 prefill, 1 decode, 2 encode
    recompute: list[int] = []
    drafted: list[int] = []
    accepted: list[int] = []
    aborted: list[bool] = []
    gpu_ns: list[Nanoseconds] = []


class KvRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="kv.1", kw_only=True):
    """One change of an engine's KV cache. Token ids are prompt content and are never recorded."""

    engine: str
    sequence: int
    at_ns: int
    event: KvEvent
    block_hashes: list[int] = []  # unsigned 64 bit
    parent_hash: int | None = None
    block_size: int = 0
    medium: str = "gpu"
    group: int = 0
    adapter: str = ""
    tenant: str = ""
    model: str = ""
    replica: str = ""


class DeviceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="device.1", kw_only=True):
    """One reading of one GPU of an engine host. `sequence` has no holes within a `host`: a hole is a loss.

    Activities are shares of the time since the previous reading, 0 to 1. `energy_joules` counts from the driver's
    start. `throttle_bits` are NVML's reasons without idleness; `xid` is the last fault since the previous reading.
    """

    host: str  # unique for each start of a host
    sequence: int
    at_ns: int
    device: str  # the GPU's UUID, or its slice's
    device_model: str = ""
    device_index: int = 0
    parent: str = ""  # of a slice: the whole GPU
    vendor: str = ""
    replica: str = ""
    gateway: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_bits: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    kernel_activity: float | None = None
    sm_activity: float | None = None
    sm_occupancy: float | None = None
    tensor_activity: float | None = None
    dram_activity: float | None = None
    other_processes: int | None = None
    is_shared: bool | None = None
    xid: int | None = None


class ContentRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="content.1", kw_only=True):
    """The prompt and answer of one request, of a tenant with content storage. `encoding` states how it was processed:
    "redacted".
    """

    request_id: RequestId
    started_at_ns: int
    tenant: str
    model: str = ""
    encoding: str = ""
    prompt: str = ""
    completion: str = ""


Record = RequestRecord | AttemptRecord | StepRecord | KvRecord | DeviceRecord | ContentRecord

EVENT_NAMES: Final[dict[type[Record], str]] = {
    RequestRecord: "tollkeeper.request",
    AttemptRecord: "tollkeeper.attempt",
    StepRecord: "tollkeeper.step",
    KvRecord: "tollkeeper.kv",
    DeviceRecord: "tollkeeper.device",
    ContentRecord: "tollkeeper.content",
}
EVENT_PREFIX: Final = "tollkeeper."

_encoder: Final = msgspec.msgpack.Encoder()
# The packed tag contains its length, so that "step.1" is not found in "step.10".
_EVENT_OF_TAG: Final = tuple((_encoder.encode(kind.__struct_config__.tag), name) for kind, name in EVENT_NAMES.items())
_ARRAY_HEADER_BYTES: Final = {**{bytes([first]): 1 for first in range(0x90, 0xA0)}, b"\xdc": 3, b"\xdd": 5}  # msgpack
_decoder: Final[msgspec.msgpack.Decoder[Record]] = msgspec.msgpack.Decoder(Record)
_STEP_LISTS: Final = (
    "tenants",
    "scheduled",
    "context",
    "cached",
    "phases",
    "recompute",
    "drafted",
    "accepted",
    "aborted",
    "gpu_ns",
)


_WITH_GAPS: Final = (RequestRecord, AttemptRecord)


def encode_record(record: Record) -> bytes:
    """Pack a record: one msgpack array beginning with its kind and schema version."""
    return _encoder.encode(record)


def decode_record(packed: bytes | memoryview) -> Record:
    """Unpack a record. Raises InvalidRecord on an unknown kind or version, a broken body or impossible values."""
    try:
        record = _decoder.decode(packed)
    except (msgspec.MsgspecError, InvalidUsage, ValueError, RecursionError) as error:
        raise InvalidRecord(f"a packed record of {len(packed)} bytes cannot be decoded: {error}") from error
    if isinstance(record, StepRecord):
        _check_step(record)
    elif isinstance(record, _WITH_GAPS):
        check_gaps(record.gaps)
    return record


def _check_step(step: StepRecord) -> None:
    requests = len(step.request_ids)
    for name in _STEP_LISTS:
        if (length := len(getattr(step, name))) and length != requests:
            raise InvalidRecord(f"a step of {requests} requests has {length} entries in {name}")
    if step.method and requests and sum(step.gpu_ns) != step.busy_ns:
        raise InvalidRecord(f"a step's gpu_ns sum to {sum(step.gpu_ns)} ns of the {step.busy_ns} ns it was busy")


def event_name_of(packed: bytes) -> str:
    """Return a packed record's event name from its tag, without decoding the rest.

    Only the position where `encode_record` puts the tag is read: a caller's text may contain another kind's tag. Raises
    InvalidRecord on an unknown kind or version.
    """
    start = _ARRAY_HEADER_BYTES.get(packed[:1])
    if start is not None:
        for tag, event_name in _EVENT_OF_TAG:
            if packed.startswith(tag, start):
                return event_name
    raise InvalidRecord(f"a packed record of {len(packed)} bytes names no known kind")
