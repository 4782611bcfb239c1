-- Why: tools written for the OpenTelemetry Collector's ClickHouse tables read ours; for reading only.
-- Undo: DROP VIEW otel_traces; DROP VIEW otel_logs.
-- Locks: nothing; it only makes views that did not exist.

CREATE VIEW IF NOT EXISTS otel_traces AS
SELECT
    started_at AS Timestamp,
    lower(hex(trace_id)) AS TraceId,
    lower(hex(span_id)) AS SpanId,
    lower(hex(parent_span_id)) AS ParentSpanId,
    trace_state AS TraceState,
    name AS SpanName,
    initcap(kind) AS SpanKind,
    service AS ServiceName,
    resource_attributes AS ResourceAttributes,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    attributes AS SpanAttributes,
    duration_ns AS Duration,
    initcap(status) AS StatusCode,
    status_message AS StatusMessage,
    event_times AS `Events.Timestamp`,
    event_names AS `Events.Name`,
    event_attributes AS `Events.Attributes`,
    arrayMap(id -> lower(hex(id)), link_trace_ids) AS `Links.TraceId`,
    arrayMap(id -> lower(hex(id)), link_span_ids) AS `Links.SpanId`,
    link_trace_states AS `Links.TraceState`,
    link_attributes AS `Links.Attributes`
FROM traces;

CREATE VIEW IF NOT EXISTS otel_logs AS
SELECT
    at AS Timestamp,
    lower(hex(trace_id)) AS TraceId,
    lower(hex(span_id)) AS SpanId,
    trace_flags AS TraceFlags,
    severity AS SeverityText,
    severity_number AS SeverityNumber,
    service AS ServiceName,
    body AS Body,
    resource_attributes AS ResourceAttributes,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    attributes AS LogAttributes,
    event_name AS EventName
FROM logs;
