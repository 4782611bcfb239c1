-- Why: OpenTelemetry's signals from our own processes and from applications: traces, metrics, logs.
-- Undo: DROP TABLE traces; DROP TABLE metrics; DROP TABLE logs.
-- Locks: nothing; it only makes tables that did not exist.

-- The OpenTelemetry Collector's own tables lack the tenant; here it leads the sort key. Ids are raw bytes, as in
-- `requests`; the views in 0006 spell them in hexadecimal.
CREATE TABLE IF NOT EXISTS traces
(
    tenant LowCardinality(String),
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    duration_ns UInt64 CODEC(T64, ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    parent_span_id String CODEC(ZSTD(1)),
    trace_state String CODEC(ZSTD(1)),
    name LowCardinality(String),
    kind LowCardinality(String), -- 'internal', 'server', 'client', 'producer', 'consumer', ''
    service LowCardinality(String),
    resource_attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    scope_name LowCardinality(String),
    scope_version LowCardinality(String),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    status LowCardinality(String), -- 'unset', 'ok', 'error'
    status_message String CODEC(ZSTD(1)),
    event_times Array(DateTime64(9, 'UTC')) CODEC(ZSTD(1)),
    event_names Array(LowCardinality(String)) CODEC(ZSTD(1)),
    event_attributes Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    link_trace_ids Array(String) CODEC(ZSTD(1)),
    link_span_ids Array(String) CODEC(ZSTD(1)),
    link_trace_states Array(String) CODEC(ZSTD(1)),
    link_attributes Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1)),
    INDEX by_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_attribute_key mapKeys(attributes) TYPE bloom_filter(0.01) GRANULARITY 2,
    INDEX by_attribute_value mapValues(attributes) TYPE bloom_filter(0.01) GRANULARITY 2,
    INDEX by_duration duration_ns TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (tenant, service, toStartOfFiveMinutes(started_at), name, started_at)
TTL greatest(toDateTime(started_at), toDateTime(ingested_at)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

-- One table for every kind of point: `kind` says which columns are set, the others are empty or NULL.
-- `series` names one stream of points without comparing maps.
CREATE TABLE IF NOT EXISTS metrics
(
    tenant LowCardinality(String),
    name LowCardinality(String),
    kind LowCardinality(String), -- 'gauge', 'sum', 'histogram', 'exponential_histogram', 'summary'
    unit LowCardinality(String),
    description LowCardinality(String),
    service LowCardinality(String),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    resource_attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    scope_name LowCardinality(String),
    scope_version LowCardinality(String),
    series UInt64 MATERIALIZED cityHash64(service, name, attributes, resource_attributes) CODEC(ZSTD(1)),
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    value Nullable(Float64) CODEC(ZSTD(1)), -- gauge and sum
    is_monotonic Bool,
    temporality LowCardinality(String), -- 'delta', 'cumulative', ''
    count Nullable(UInt64) CODEC(T64, ZSTD(1)),
    sum Nullable(Float64) CODEC(ZSTD(1)),
    min Nullable(Float64) CODEC(ZSTD(1)),
    max Nullable(Float64) CODEC(ZSTD(1)),
    bucket_counts Array(UInt64) CODEC(T64, ZSTD(1)),
    bucket_bounds Array(Float64) CODEC(ZSTD(1)),
    scale Int32 CODEC(T64, ZSTD(1)), -- exponential histograms from here
    zero_count UInt64 CODEC(T64, ZSTD(1)),
    positive_offset Int32 CODEC(T64, ZSTD(1)),
    positive_counts Array(UInt64) CODEC(T64, ZSTD(1)),
    negative_offset Int32 CODEC(T64, ZSTD(1)),
    negative_counts Array(UInt64) CODEC(T64, ZSTD(1)),
    quantiles Array(Float64) CODEC(ZSTD(1)), -- summaries from here
    quantile_values Array(Float64) CODEC(ZSTD(1)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (tenant, service, name, series, at)
TTL greatest(toDateTime(at), toDateTime(ingested_at)) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS logs
(
    tenant LowCardinality(String),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    observed_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    trace_flags UInt8,
    severity LowCardinality(String),
    severity_number UInt8,
    service LowCardinality(String),
    event_name LowCardinality(String),
    body String CODEC(ZSTD(1)),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    resource_attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    scope_name LowCardinality(String),
    scope_version LowCardinality(String),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1)),
    INDEX by_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (tenant, service, toStartOfFiveMinutes(at), at)
TTL greatest(toDateTime(at), toDateTime(ingested_at)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
