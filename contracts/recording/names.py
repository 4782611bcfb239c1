"""The names of our own spans' attributes and of table columns; other spellings are in `dialects.py`.

GenAI conventions are in development (semantic-conventions-genai, state of November 2026): every spelling is in these
two modules; new ones are written, old ones are read. A column is a name, a kind and a place on a record; the store maps
kinds to ClickHouse and Arrow types, and a test compares both with the migrated tables.
"""

from typing import Any, Final

from contracts.metering.usage import TOKEN_LEAVES, UNIT_LEAVES, column_of
from contracts.recording.columns import Column as Column
from contracts.recording.columns import ColumnKind as ColumnKind
from contracts.recording.columns import Table as Table
from contracts.recording.columns import fields as _fields
from contracts.recording.dialects import CACHE_READ_TOKENS as CACHE_READ_TOKENS
from contracts.recording.dialects import CACHE_WRITE_TOKENS as CACHE_WRITE_TOKENS
from contracts.recording.dialects import CONVERSATION_ID as CONVERSATION_ID
from contracts.recording.dialects import COST_AMOUNT as COST_AMOUNT
from contracts.recording.dialects import COST_CURRENCY as COST_CURRENCY
from contracts.recording.dialects import COST_SOURCE as COST_SOURCE
from contracts.recording.dialects import FINISH_REASONS as FINISH_REASONS
from contracts.recording.dialects import INPUT_TOKENS as INPUT_TOKENS
from contracts.recording.dialects import OPERATION_NAME as OPERATION_NAME
from contracts.recording.dialects import OUTPUT_TOKENS as OUTPUT_TOKENS
from contracts.recording.dialects import PROVIDER_NAME as PROVIDER_NAME
from contracts.recording.dialects import REASONING_TOKENS as REASONING_TOKENS
from contracts.recording.dialects import REQUEST_CHOICE_COUNT as REQUEST_CHOICE_COUNT
from contracts.recording.dialects import REQUEST_MAX_TOKENS as REQUEST_MAX_TOKENS
from contracts.recording.dialects import REQUEST_MODEL as REQUEST_MODEL
from contracts.recording.dialects import REQUEST_STREAM as REQUEST_STREAM
from contracts.recording.dialects import REQUEST_TEMPERATURE as REQUEST_TEMPERATURE
from contracts.recording.dialects import RESPONSE_ID as RESPONSE_ID
from contracts.recording.dialects import RESPONSE_MODEL as RESPONSE_MODEL
from contracts.recording.dialects import TIME_TO_FIRST_CHUNK as TIME_TO_FIRST_CHUNK
from contracts.recording.records import AttemptRecord, ContentRecord, DeviceRecord, KvRecord, RequestRecord, StepRecord
from contracts.recording.telemetry import LogRow, MetricRow, SpanRow

# --- attributes of spans, foreign and our own -------------------------------------------------------------

ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
TENANT: Final = "tollkeeper.tenant.id"
TEAM: Final = "tollkeeper.team.id"
PROJECT: Final = "tollkeeper.project.id"
KEY: Final = "tollkeeper.key.id"
REQUEST_ID: Final = "tollkeeper.request.id"
ATTEMPT_NUMBER: Final = "tollkeeper.attempt.number"
ATTEMPT_REASON: Final = "tollkeeper.attempt.reason"
ATTEMPTS_OMITTED: Final = "tollkeeper.attempts.omitted"  # earlier ones without a span
TARGET: Final = "tollkeeper.target.id"
GPU_TIME_NS: Final = "tollkeeper.gpu_time_ns"
BATCH_ID: Final = "tollkeeper.batch.id"
BATCH_SIGNATURE: Final = "tollkeeper.batch.signature"
SAMPLED_SHARE: Final = "tollkeeper.sampled.share"  # on spans of sampled traces: the share that they stand for
CLOCK_TAG: Final = "tollkeeper.clock"  # on rows whose time was out of range and has been clamped


def span_name(record: RequestRecord) -> str:
    """Return the name of a request's span by the conventions: operation, then requested model."""
    return f"{record.operation} {record.requested_model}"


def span_attributes(record: RequestRecord) -> dict[str, str | int | float | bool | list[str]]:
    """Return a request's attributes in the GenAI conventions. Unknown values are omitted, never zero."""
    usage = record.usage
    cost = None if record.cost_pico_usd is None else record.cost_pico_usd / 1e12
    candidates: dict[str, str | int | float | bool | list[str] | None] = {
        OPERATION_NAME: record.operation,
        PROVIDER_NAME: record.provider or None,
        REQUEST_MODEL: record.requested_model or None,
        RESPONSE_MODEL: record.model or None,
        REQUEST_STREAM: record.stream or None,
        REQUEST_MAX_TOKENS: record.max_tokens,
        REQUEST_TEMPERATURE: record.temperature,
        REQUEST_CHOICE_COUNT: record.choices if record.choices != 1 else None,
        FINISH_REASONS: [record.finish_reason] if record.finish_reason else None,
        TIME_TO_FIRST_CHUNK: record.ttft_ns / 1e9 if record.stream and record.ttft_ns is not None else None,
        INPUT_TOKENS: usage.input_tokens,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_READ_TOKENS: usage.cache_read_tokens,
        CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        REASONING_TOKENS: usage.output_reasoning,
        COST_AMOUNT: cost,
        COST_CURRENCY: None if cost is None else "USD",
        COST_SOURCE: None if cost is None else "local",
        CONVERSATION_ID: record.conversation_id or None,
        ERROR_TYPE: record.error_code or None,
        TENANT: record.who.tenant or None,
        TEAM: record.who.team or None,
        PROJECT: record.who.project or None,
        KEY: record.who.key_id or None,
        REQUEST_ID: record.request_id.hex(),
    }
    return {name: value for name, value in candidates.items() if value is not None}


# --- table columns ----------------------------------------------------------------------------------------

_WHO: Final[tuple[Column[Any], ...]] = (
    Column("tenant", "label", "who.tenant"),
    Column("team", "label", "who.team"),
    Column("project", "label", "who.project"),
    Column("key_id", "label", "who.key_id"),
    Column("end_user", "string", "who.user"),
    Column("tags", "labels", "who.tags"),
)
_USAGE: Final[tuple[Column[Any], ...]] = tuple(
    Column(column_of(leaf), "u32?", f"usage.{leaf}") for leaf in TOKEN_LEAVES
)
_UNITS: Final[tuple[Column[Any], ...]] = tuple(Column(column_of(leaf), "u32?", f"usage.{leaf}") for leaf in UNIT_LEAVES)
_GPU: Final[tuple[Column[Any], ...]] = (
    Column("gpu_prefill_ns", "u64?", "gpu.prefill_ns"),
    Column("gpu_decode_ns", "u64?", "gpu.decode_ns"),
    Column("gpu_recompute_ns", "u64?", "gpu.recompute_ns"),
    Column("gpu_wasted_ns", "u64?", "gpu.wasted_ns"),
    Column("kv_block_seconds", "f64?", "gpu.kv_block_seconds"),
    Column("attribution_method", "label", "gpu.method", absent=""),
    Column("attribution_confidence", "f64?", "gpu.confidence"),
)
_COST: Final[tuple[Column[Any], ...]] = (
    Column("cost_usd", "usd?", "cost_pico_usd"),
    *_fields("label", "cost_basis", "price_version"),
)

REQUESTS: Final[Table[RequestRecord]] = Table(
    "requests",
    (
        *_fields("uuid", "request_id"),
        Column("started_at", "time_ns", "started_at_ns"),
        *_fields("u64", "duration_ns"),
        *_WHO,
        *_fields("label", "operation", "api", "outcome"),
        *_fields("u16", "status"),
        *_fields("label", "error_code", "finish_reason"),
        *_fields("bool", "stream"),
        *_fields(
            "label",
            "requested_model",
            "route",
            "model",
            "model_version",
            "provider",
            "pool",
            "replica",
            "adapter",
            "region",
            "gateway",
        ),
        *_fields("u64?", "ttft_ns", "admission_ns", "queue_ns"),
        *_fields("u32_packed[]", "gaps"),
        *_fields("label", "gap_clock"),
        *_USAGE,
        *_fields("label", "count_method"),
        *_fields("u32?", "engine_output_tokens", "recompute_tokens", "overrun_tokens", "wasted_tokens"),
        *_COST,
        Column("charged_usd", "usd?", "charged_pico_usd"),
        *_GPU,
        *_fields("u16", "attempts"),
        *_fields("u32?", "max_tokens"),
        *_fields("u16", "choices"),
        *_fields("f64?", "temperature"),
        *_fields("u32", "request_bytes", "response_bytes"),
        *_fields("label", "cache"),
        Column("limit_name", "label", "limit"),
        *_fields("u32?", "reserved_tokens"),
        *_fields("label[]", "verdicts"),
        *_fields("string", "route_decision"),
        *_fields("bytes", "trace_id", "span_id"),
        *_fields("label", "run_id"),
        *_fields("string", "conversation_id"),
        *_fields("label", "prompt_name", "prompt_version"),
        *_fields("u32?", "tool_calls"),
        *_fields("bool?", "schema_failed"),
        *_fields("label", "priority"),
        *_fields("u64?", "wait_ns"),
        *_fields("u64[]", "charge_offsets_ns"),
        *_fields("u32[]", "charge_tokens"),
        *_fields("u32?", "overdraft_tokens"),
        *_fields("u64?", "cold_start_ns"),
        *_fields("label", "arm", "rollout"),
        *_fields("u64?", "guard_ns", "guard_held_ns"),
        *_fields("label[]", "unpriced_leaves"),
        *_fields("label", "service_tier"),
        Column("overdraft_usd", "usd?", "overdraft_pico_usd"),
        *_fields("u32?", "thinking_over_tokens", "upstream_status"),
        *_fields("label", "upstream_error"),
        *_fields("string", "upstream_message"),
        *_fields("label[]", "tools"),
        *_fields("u32[]", "tool_marks", "prompt_marks"),
        *_fields("string", "provider_usage"),
        *_UNITS,
    ),
)

ATTEMPTS: Final[Table[AttemptRecord]] = Table(
    "attempts",
    (
        *_fields("uuid", "request_id"),
        *_fields("u16", "number"),
        Column("started_at", "time_ns", "started_at_ns"),
        *_fields("u64", "duration_ns"),
        *_WHO,
        *_fields("label", "reason", "outcome"),
        *_fields("u16", "status"),
        *_fields("label", "error_code", "model", "provider", "pool", "replica", "region", "gateway"),
        *_fields("u64?", "ttft_ns"),
        *_fields("u32_packed[]", "gaps"),
        *_fields("label", "gap_clock"),
        *_USAGE,
        *_fields("label", "count_method"),
        *_COST,
        *_GPU,
        *_fields("label", "run_id"),
        *_fields("u32?", "upstream_status"),
        *_fields("label", "upstream_error"),
        *_fields("string", "upstream_message"),
        *_UNITS,
    ),
)

ENGINE_STEPS: Final[Table[StepRecord]] = Table(
    "engine_steps",
    (
        *_fields("label", "engine"),
        *_fields("u64", "sequence"),
        Column("started_at", "time_ns", "started_at_ns"),
        *_fields("u64", "busy_ns", "gap_ns"),
        *_fields("label", "kind", "gap_cause"),
        *_fields("u64?", "forward_ns", "rank_skew_ns"),
        *_fields("label", "model", "replica", "gateway"),
        *_fields("label[]", "devices"),
        *_fields("u16", "ranks"),
        *_fields("u32?", "running", "waiting", "kv_blocks_used", "kv_blocks_total"),
        *_fields("label", "method", "fit_version"),
        *_fields("f64?", "confidence"),
        *_fields("uuid[]", "request_ids"),
        *_fields("label[]", "tenants"),
        *_fields("u32[]", "scheduled", "context", "cached"),
        *_fields("u8[]", "phases"),
        *_fields("u32[]", "recompute", "drafted", "accepted"),
        *_fields("bool[]", "aborted"),
        *_fields("u64[]", "gpu_ns"),
    ),
)

KV_EVENTS: Final[Table[KvRecord]] = Table(
    "kv_events",
    (
        *_fields("label", "engine"),
        *_fields("u64", "sequence"),
        Column("at", "time_ns", "at_ns"),
        *_fields("label", "event"),
        *_fields("u64[]", "block_hashes"),
        *_fields("u64?", "parent_hash"),
        *_fields("u32", "block_size"),
        *_fields("label", "medium"),
        Column("cache_group", "u16", "group"),
        *_fields("label", "adapter", "tenant", "model", "replica"),
    ),
)

GPU_SAMPLES: Final[Table[DeviceRecord]] = Table(
    "gpu_samples",
    (
        *_fields("label", "host"),
        *_fields("u64", "sequence"),
        Column("at", "time_ns", "at_ns"),
        *_fields("label", "device", "device_model"),
        *_fields("u16", "device_index"),
        *_fields("label", "parent", "vendor", "replica", "gateway"),
        *_fields("u64?", "memory_total_bytes", "memory_used_bytes"),
        *_fields("f64?", "power_watts", "energy_joules", "temperature_celsius", "memory_temperature_celsius"),
        *_fields("u32?", "sm_clock_mhz", "memory_clock_mhz", "throttle_bits"),
        *_fields("u64?", "ecc_corrected", "ecc_uncorrected"),
        *_fields("f64?", "kernel_activity", "sm_activity", "sm_occupancy", "tensor_activity", "dram_activity"),
        *_fields("u32?", "other_processes"),
        *_fields("bool?", "is_shared"),
        *_fields("u32?", "xid"),
    ),
)

CONTENT: Final[Table[ContentRecord]] = Table(
    "content",
    (
        *_fields("label", "tenant"),
        *_fields("uuid", "request_id"),
        Column("started_at", "time_ns", "started_at_ns"),
        *_fields("label", "model", "encoding"),
        *_fields("string", "prompt", "completion"),
    ),
)

TRACES: Final[Table[SpanRow]] = Table(
    "traces",
    (
        *_fields("label", "tenant"),
        Column("started_at", "time_ns", "started_at_ns"),
        *_fields("u64", "duration_ns"),
        *_fields("bytes", "trace_id", "span_id", "parent_span_id"),
        *_fields("string", "trace_state"),
        *_fields("label", "name", "kind", "service"),
        *_fields("labels", "resource_attributes"),
        *_fields("label", "scope_name", "scope_version"),
        *_fields("labels", "attributes"),
        *_fields("label", "status"),
        *_fields("string", "status_message"),
        Column("event_times", "time_ns[]", "event_times_ns"),
        *_fields("label[]", "event_names"),
        *_fields("labels[]", "event_attributes"),
        *_fields("bytes[]", "link_trace_ids", "link_span_ids"),
        *_fields("string[]", "link_trace_states"),
        *_fields("labels[]", "link_attributes"),
    ),
)

LOGS: Final[Table[LogRow]] = Table(
    "logs",
    (
        *_fields("label", "tenant"),
        Column("at", "time_ns", "at_ns"),
        Column("observed_at", "time_ns", "observed_at_ns"),
        *_fields("bytes", "trace_id", "span_id"),
        *_fields("u8", "trace_flags"),
        *_fields("label", "severity"),
        *_fields("u8", "severity_number"),
        *_fields("label", "service", "event_name"),
        *_fields("string", "body"),
        *_fields("labels", "attributes", "resource_attributes"),
        *_fields("label", "scope_name", "scope_version"),
    ),
)

METRICS: Final[Table[MetricRow]] = Table(
    "metrics",
    (
        *_fields("label", "tenant", "name", "kind", "unit", "description", "service"),
        *_fields("labels", "attributes", "resource_attributes"),
        *_fields("label", "scope_name", "scope_version"),
        Column("started_at", "time_ns", "started_at_ns"),
        Column("at", "time_ns", "at_ns"),
        *_fields("f64?", "value"),
        *_fields("bool", "is_monotonic"),
        *_fields("label", "temporality"),
        *_fields("u64?", "count"),
        *_fields("f64?", "sum", "min", "max"),
        *_fields("u64[]", "bucket_counts"),
        *_fields("f64[]", "bucket_bounds"),
        *_fields("i32", "scale"),
        *_fields("u64", "zero_count"),
        *_fields("i32", "positive_offset"),
        *_fields("u64[]", "positive_counts"),
        *_fields("i32", "negative_offset"),
        *_fields("u64[]", "negative_counts"),
        *_fields("f64[]", "quantiles", "quantile_values"),
    ),
)

TABLES: Final[dict[type, Table[Any]]] = {
    RequestRecord: REQUESTS,
    AttemptRecord: ATTEMPTS,
    StepRecord: ENGINE_STEPS,
    KvRecord: KV_EVENTS,
    DeviceRecord: GPU_SAMPLES,
    ContentRecord: CONTENT,
}
