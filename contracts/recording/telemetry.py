"""Telemetry from other systems: spans, log lines and metrics, as rows. Times are Unix ns (UTC)."""

import msgspec


class SpanRow(msgspec.Struct, frozen=True, gc=False):
    """One span. Attribute names are those of `contracts/recording/names.py`; values are text.

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


class LogRow(msgspec.Struct, frozen=True, gc=False):
    """One log record or event."""

    tenant: str
    at_ns: int
    observed_at_ns: int
    trace_id: bytes  # 16, or empty
    span_id: bytes  # 8, or empty
    trace_flags: int  # the W3C flags: 8 bits
    severity: str
    severity_number: int  # OpenTelemetry uses 1 to 24; 0: not set
    service: str
    event_name: str
    body: str
    attributes: dict[str, str]
    resource_attributes: dict[str, str]
    scope_name: str
    scope_version: str


class MetricRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One data point of one series. `kind` determines which fields are used; the others keep their defaults."""

    tenant: str
    name: str
    kind: str  # "gauge", "sum", "histogram", "exponential_histogram", "summary"
    unit: str
    description: str
    service: str
    attributes: dict[str, str]
    resource_attributes: dict[str, str]
    scope_name: str
    scope_version: str
    started_at_ns: int
    at_ns: int
    value: float | None = None  # gauge and sum
    is_monotonic: bool = False
    temporality: str = ""  # "delta", "cumulative"
    count: int | None = None
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    bucket_counts: list[int] = []
    bucket_bounds: list[float] = []
    scale: int = 0  # exponential histograms from here
    zero_count: int = 0
    positive_offset: int = 0
    positive_counts: list[int] = []
    negative_offset: int = 0
    negative_counts: list[int] = []
    quantiles: list[float] = []  # summaries from here
    quantile_values: list[float] = []
