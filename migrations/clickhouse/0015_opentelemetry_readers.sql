-- Why: tools for the OpenTelemetry Collector's ClickHouse tables also read metrics, a trace's time and TimestampTime.
-- Undo: DROP the views made here, and make otel_logs again as in 0006.
-- Locks: nothing; views for reading alone. otel_logs is missing for a moment.

-- What such a tool reads of a kind that the point is not of does not exist here: one table keeps every kind, and a
-- view of each shows its own. What was not reported is 0 in their columns, which know no NULL.

CREATE VIEW IF NOT EXISTS otel_traces_trace_id_ts AS
SELECT
    lower(hex(trace_id)) AS TraceId,
    min(toDateTime(started_at, 'UTC')) AS Start,
    max(toDateTime(started_at, 'UTC')) AS End
FROM traces
GROUP BY trace_id;

DROP VIEW IF EXISTS otel_logs;

CREATE VIEW IF NOT EXISTS otel_logs AS
SELECT
    at AS Timestamp,
    toDateTime(at, 'UTC') AS TimestampTime,
    lower(hex(trace_id)) AS TraceId,
    lower(hex(span_id)) AS SpanId,
    trace_flags AS TraceFlags,
    severity AS SeverityText,
    severity_number AS SeverityNumber,
    service AS ServiceName,
    body AS Body,
    '' AS ResourceSchemaUrl,
    resource_attributes AS ResourceAttributes,
    '' AS ScopeSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    attributes AS LogAttributes,
    event_name AS EventName
FROM logs;

CREATE VIEW IF NOT EXISTS otel_metrics_gauge AS
SELECT
    resource_attributes AS ResourceAttributes,
    '' AS ResourceSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    toUInt32(0) AS ScopeDroppedAttrCount,
    '' AS ScopeSchemaUrl,
    service AS ServiceName,
    name AS MetricName,
    description AS MetricDescription,
    unit AS MetricUnit,
    attributes AS Attributes,
    started_at AS StartTimeUnix,
    at AS TimeUnix,
    assumeNotNull(value) AS Value,
    toUInt32(0) AS Flags,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Exemplars.FilteredAttributes`,
    CAST([], 'Array(DateTime64(9))') AS `Exemplars.TimeUnix`,
    CAST([], 'Array(Float64)') AS `Exemplars.Value`,
    CAST([], 'Array(String)') AS `Exemplars.SpanId`,
    CAST([], 'Array(String)') AS `Exemplars.TraceId`
FROM metrics
WHERE kind = 'gauge';

CREATE VIEW IF NOT EXISTS otel_metrics_sum AS
SELECT
    resource_attributes AS ResourceAttributes,
    '' AS ResourceSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    toUInt32(0) AS ScopeDroppedAttrCount,
    '' AS ScopeSchemaUrl,
    service AS ServiceName,
    name AS MetricName,
    description AS MetricDescription,
    unit AS MetricUnit,
    attributes AS Attributes,
    started_at AS StartTimeUnix,
    at AS TimeUnix,
    assumeNotNull(value) AS Value,
    toInt32(indexOf(['delta', 'cumulative'], temporality)) AS AggregationTemporality,
    is_monotonic AS IsMonotonic,
    toUInt32(0) AS Flags,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Exemplars.FilteredAttributes`,
    CAST([], 'Array(DateTime64(9))') AS `Exemplars.TimeUnix`,
    CAST([], 'Array(Float64)') AS `Exemplars.Value`,
    CAST([], 'Array(String)') AS `Exemplars.SpanId`,
    CAST([], 'Array(String)') AS `Exemplars.TraceId`
FROM metrics
WHERE kind = 'sum';

CREATE VIEW IF NOT EXISTS otel_metrics_histogram AS
SELECT
    resource_attributes AS ResourceAttributes,
    '' AS ResourceSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    toUInt32(0) AS ScopeDroppedAttrCount,
    '' AS ScopeSchemaUrl,
    service AS ServiceName,
    name AS MetricName,
    description AS MetricDescription,
    unit AS MetricUnit,
    attributes AS Attributes,
    started_at AS StartTimeUnix,
    at AS TimeUnix,
    assumeNotNull(metrics.count) AS Count,
    ifNull(metrics.sum, 0) AS Sum,
    bucket_counts AS BucketCounts,
    bucket_bounds AS ExplicitBounds,
    ifNull(metrics.min, 0) AS Min,
    ifNull(metrics.max, 0) AS Max,
    toInt32(indexOf(['delta', 'cumulative'], temporality)) AS AggregationTemporality,
    toUInt32(0) AS Flags,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Exemplars.FilteredAttributes`,
    CAST([], 'Array(DateTime64(9))') AS `Exemplars.TimeUnix`,
    CAST([], 'Array(Float64)') AS `Exemplars.Value`,
    CAST([], 'Array(String)') AS `Exemplars.SpanId`,
    CAST([], 'Array(String)') AS `Exemplars.TraceId`
FROM metrics
WHERE kind = 'histogram';

CREATE VIEW IF NOT EXISTS otel_metrics_exponential_histogram AS
SELECT
    resource_attributes AS ResourceAttributes,
    '' AS ResourceSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    toUInt32(0) AS ScopeDroppedAttrCount,
    '' AS ScopeSchemaUrl,
    service AS ServiceName,
    name AS MetricName,
    description AS MetricDescription,
    unit AS MetricUnit,
    attributes AS Attributes,
    started_at AS StartTimeUnix,
    at AS TimeUnix,
    assumeNotNull(metrics.count) AS Count,
    ifNull(metrics.sum, 0) AS Sum,
    scale AS Scale,
    zero_count AS ZeroCount,
    positive_offset AS PositiveOffset,
    positive_counts AS PositiveBucketCounts,
    negative_offset AS NegativeOffset,
    negative_counts AS NegativeBucketCounts,
    ifNull(metrics.min, 0) AS Min,
    ifNull(metrics.max, 0) AS Max,
    toInt32(indexOf(['delta', 'cumulative'], temporality)) AS AggregationTemporality,
    toUInt32(0) AS Flags,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Exemplars.FilteredAttributes`,
    CAST([], 'Array(DateTime64(9))') AS `Exemplars.TimeUnix`,
    CAST([], 'Array(Float64)') AS `Exemplars.Value`,
    CAST([], 'Array(String)') AS `Exemplars.SpanId`,
    CAST([], 'Array(String)') AS `Exemplars.TraceId`
FROM metrics
WHERE kind = 'exponential_histogram';

CREATE VIEW IF NOT EXISTS otel_metrics_summary AS
SELECT
    resource_attributes AS ResourceAttributes,
    '' AS ResourceSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    toUInt32(0) AS ScopeDroppedAttrCount,
    '' AS ScopeSchemaUrl,
    service AS ServiceName,
    name AS MetricName,
    description AS MetricDescription,
    unit AS MetricUnit,
    attributes AS Attributes,
    started_at AS StartTimeUnix,
    at AS TimeUnix,
    assumeNotNull(metrics.count) AS Count,
    ifNull(metrics.sum, 0) AS Sum,
    quantiles AS `ValueAtQuantiles.Quantile`,
    quantile_values AS `ValueAtQuantiles.Value`,
    toUInt32(0) AS Flags
FROM metrics
WHERE kind = 'summary';
