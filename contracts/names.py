"""The one module that knows `gen_ai.*` attribute names and the names of table columns.

GenAI conventions are in development (semantic-conventions-genai, state of November 2026): every spelling lives
here, new ones are written, old ones are read. A column is a name, a kind and the way to read it off a record;
the store maps kinds to ClickHouse and Arrow types, and a test holds both against the migrated tables.
"""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from contracts.columns import Column as Column
from contracts.columns import ColumnKind as ColumnKind
from contracts.columns import Table as Table
from contracts.columns import field_reader as _field_reader
from contracts.columns import fields as _fields
from contracts.records import AttemptRecord, DeviceRecord, GpuShare, KvRecord, RequestRecord, StepRecord
from contracts.telemetry import LogRow, SpanRow
from contracts.usage import LEAVES

# --- attributes of spans, foreign and our own -------------------------------------------------------------

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
COST_AMOUNT: Final = "gen_ai.usage.cost.amount"
COST_CURRENCY: Final = "gen_ai.usage.cost.currency"
COST_SOURCE: Final = "gen_ai.usage.cost.source"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
TENANT: Final = "tollkeeper.tenant.id"
TEAM: Final = "tollkeeper.team.id"
PROJECT: Final = "tollkeeper.project.id"
KEY: Final = "tollkeeper.key.id"
REQUEST_ID: Final = "tollkeeper.request.id"
BATCH_ID: Final = "tollkeeper.batch.id"
CLOCK_TAG: Final = "tollkeeper.clock"  # on rows whose time was out of range and has been clamped

# Old or foreign spelling -> the one we store under. vLLM 0.25 to 0.33 and pre-2025 conventions.
OLD_SPELLINGS: Final[dict[str, str]] = {
    "gen_ai.system": PROVIDER_NAME,
    "gen_ai.usage.prompt_tokens": INPUT_TOKENS,
    "gen_ai.usage.completion_tokens": OUTPUT_TOKENS,
    "gen_ai.usage.cache_creation.input_tokens": CACHE_WRITE_TOKENS,
    "gen_ai.usage.cache_read_input_tokens": CACHE_READ_TOKENS,
    "gen_ai.usage.cache_creation_input_tokens": CACHE_WRITE_TOKENS,
    "gen_ai.request.id": RESPONSE_ID,
}

# Attributes that carry what was said. They are not stored.
CONTENT_ATTRIBUTES: Final = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.event.content",
    }
)
CONTENT_EVENT_PREFIX: Final = "gen_ai."  # events of this kind say in their body what was said
# The same in the spellings of OpenLLMetry, OpenInference and Vercel's SDK: whole families, numbered by message.
CONTENT_FAMILIES: Final = re.compile(
    r"(gen_ai\.(prompt|completion)\.\d|traceloop\.entity\.(input|output)$|(input|output)\.value$"
    r"|llm\.(prompts?|completions?|input_messages|output_messages|prompt_template\.variables)(\.|$)"
    r"|retrieval\.documents\.|message\.content|ai\.(prompt|response\.(text|object|toolCalls)|toolCall\.(args|result)))"
)


def span_name(record: RequestRecord) -> str:
    """Name a request's span as the conventions ask: operation, then requested model."""
    return f"{record.operation} {record.requested_model}"


def span_attributes(record: RequestRecord) -> dict[str, str | int | float | bool | list[str]]:
    """Give a request's attributes in the GenAI conventions. Unknown values are left out, never zero."""
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


def current_spelling(attribute: str) -> str:
    """Give the spelling we store an attribute under."""
    return OLD_SPELLINGS.get(attribute, attribute)


# --- table columns ----------------------------------------------------------------------------------------


def _who_reader(name: str) -> Callable[[Any], Any]:
    return attrgetter(f"who.{name}")


def _usage_reader(name: str) -> Callable[[Any], Any]:
    return attrgetter(f"usage.{name}")


def _gpu_reader(name: str, absent: Any) -> Callable[[Any], Any]:
    def read(record: Any) -> Any:
        share: GpuShare | None = record.gpu
        return absent if share is None else getattr(share, name)

    return read


_WHO: Final[tuple[Column[Any], ...]] = (
    Column("tenant", "label", _who_reader("tenant")),
    Column("team", "label", _who_reader("team")),
    Column("project", "label", _who_reader("project")),
    Column("key_id", "label", _who_reader("key_id")),
    Column("end_user", "string", _who_reader("user")),
    Column("tags", "labels", _who_reader("tags")),
)
_USAGE: Final[tuple[Column[Any], ...]] = tuple(Column(f"tokens_{leaf}", "u32?", _usage_reader(leaf)) for leaf in LEAVES)
_GPU: Final[tuple[Column[Any], ...]] = (
    Column("gpu_prefill_ns", "u64?", _gpu_reader("prefill_ns", None)),
    Column("gpu_decode_ns", "u64?", _gpu_reader("decode_ns", None)),
    Column("gpu_recompute_ns", "u64?", _gpu_reader("recompute_ns", None)),
    Column("gpu_wasted_ns", "u64?", _gpu_reader("wasted_ns", None)),
    Column("kv_block_seconds", "f64?", _gpu_reader("kv_block_seconds", None)),
    Column("attribution_method", "label", _gpu_reader("method", "")),
    Column("attribution_confidence", "f64?", _gpu_reader("confidence", None)),
)
_COST: Final[tuple[Column[Any], ...]] = (
    Column("cost_usd", "usd?", _field_reader("cost_pico_usd")),
    *_fields("label", "cost_basis", "price_version"),
)

REQUESTS: Final[Table[RequestRecord]] = Table(
    "requests",
    (
        *_fields("uuid", "request_id"),
        Column("started_at", "time_ns", _field_reader("started_at_ns")),
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
        Column("charged_usd", "usd?", _field_reader("charged_pico_usd")),
        *_GPU,
        *_fields("u16", "attempts"),
        *_fields("u32?", "max_tokens"),
        *_fields("u16", "choices"),
        *_fields("f64?", "temperature"),
        *_fields("u32", "request_bytes", "response_bytes"),
        *_fields("label", "cache"),
        Column("limit_name", "label", _field_reader("limit")),
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
    ),
)

ATTEMPTS: Final[Table[AttemptRecord]] = Table(
    "attempts",
    (
        *_fields("uuid", "request_id"),
        *_fields("u16", "number"),
        Column("started_at", "time_ns", _field_reader("started_at_ns")),
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
    ),
)

ENGINE_STEPS: Final[Table[StepRecord]] = Table(
    "engine_steps",
    (
        *_fields("label", "engine"),
        *_fields("u64", "sequence"),
        Column("started_at", "time_ns", _field_reader("started_at_ns")),
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
        Column("at", "time_ns", _field_reader("at_ns")),
        *_fields("label", "event"),
        *_fields("u64[]", "block_hashes"),
        *_fields("u64?", "parent_hash"),
        *_fields("u32", "block_size"),
        *_fields("label", "medium"),
        Column("cache_group", "u16", _field_reader("group")),
        *_fields("label", "adapter", "tenant", "model", "replica"),
    ),
)

GPU_SAMPLES: Final[Table[DeviceRecord]] = Table(
    "gpu_samples",
    (
        *_fields("label", "host"),
        *_fields("u64", "sequence"),
        Column("at", "time_ns", _field_reader("at_ns")),
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

TRACES: Final[Table[SpanRow]] = Table(
    "traces",
    (
        *_fields("label", "tenant"),
        Column("started_at", "time_ns", _field_reader("started_at_ns")),
        *_fields("u64", "duration_ns"),
        *_fields("bytes", "trace_id", "span_id", "parent_span_id"),
        *_fields("string", "trace_state"),
        *_fields("label", "name", "kind", "service"),
        *_fields("labels", "resource_attributes"),
        *_fields("label", "scope_name", "scope_version"),
        *_fields("labels", "attributes"),
        *_fields("label", "status"),
        *_fields("string", "status_message"),
        Column("event_times", "time_ns[]", _field_reader("event_times_ns")),
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
        Column("at", "time_ns", _field_reader("at_ns")),
        Column("observed_at", "time_ns", _field_reader("observed_at_ns")),
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

TABLES: Final[dict[type, Table[Any]]] = {
    RequestRecord: REQUESTS,
    AttemptRecord: ATTEMPTS,
    StepRecord: ENGINE_STEPS,
    KvRecord: KV_EVENTS,
    DeviceRecord: GPU_SAMPLES,
}
