"""Telemetry that is not a record of ours: anyone's spans and log lines, as rows. Times are Unix nanoseconds (UTC)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span. Attribute names are in the spelling of `contracts/names.py`; values are text.

    The `event_*` lists run in parallel, one entry per event; the `link_*` lists likewise.
    """

    tenant: str
    started_at_ns: int
    duration_ns: int
    trace_id: bytes  # 16
    span_id: bytes  # 8
    parent_span_id: bytes  # 8, or empty
    trace_state: str
    name: str
    kind: str  # "internal", "server", "client", "producer", "consumer", ""
    service: str
    resource_attributes: dict[str, str]
    scope_name: str
    scope_version: str
    attributes: dict[str, str]
    status: str  # "unset", "ok", "error"
    status_message: str
    event_times_ns: list[int]
    event_names: list[str]
    event_attributes: list[dict[str, str]]
    link_trace_ids: list[bytes]
    link_span_ids: list[bytes]
    link_trace_states: list[str]
    link_attributes: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class LogRow:
    """One log record or event."""

    tenant: str
    at_ns: int
    observed_at_ns: int
    trace_id: bytes  # 16, or empty
    span_id: bytes  # 8, or empty
    trace_flags: int  # the W3C flags: 8 bits
    severity: str
    severity_number: int  # OpenTelemetry uses 1 to 24; 0 not set
    service: str
    event_name: str
    body: str
    attributes: dict[str, str]
    resource_attributes: dict[str, str]
    scope_name: str
    scope_version: str
