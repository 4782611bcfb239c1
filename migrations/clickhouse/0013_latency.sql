-- Why: a day's percentiles were kept by team, project and outcome, and an hour's over all tenants took a month of rows.
-- Undo: DROP the three views, then requests_recent, latency_day, model_latency_day.
-- Locks: readers wait for nothing. Collectors must be stopped, as `tollkeeper up` has them: rows that are inserted
-- while it copies would be counted twice. Copying takes a second for about half a million requests of three days.
--
-- Every copy starts from an empty table and before its view exists, so a file that was cut half-way can be run again.

-- Quantiles of one stretch of time over all tenants: `requests`, where a tenant comes first, holds them in every
-- granule. In the order of time, and narrow, for as long as minutes are looked at.
CREATE TABLE IF NOT EXISTS requests_recent
(
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    ttft_ns Nullable(UInt64) CODEC(T64, ZSTD(1)),
    gaps Array(UInt32) CODEC(T64, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (toStartOfFiveMinutes(started_at), tenant, model)
TTL toDateTime(started_at) + INTERVAL 72 HOUR
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

DROP VIEW IF EXISTS requests_recent_from_requests;

TRUNCATE TABLE IF EXISTS requests_recent;

INSERT INTO requests_recent (started_at, tenant, model, ttft_ns, gaps)
SELECT started_at, tenant, model, ttft_ns, gaps
FROM requests
WHERE started_at >= now() - INTERVAL 72 HOUR
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_recent_from_requests TO requests_recent AS
SELECT started_at, tenant, model, ttft_ns, gaps
FROM requests;

-- Sketches (DDSketch, relative error 1 %) at 0.5, 0.9, 0.95, 0.99 of the time to the first token and the duration
-- in nanoseconds, and of the gaps in 10 us units; by day for good. A state merges only with its own levels.
CREATE TABLE IF NOT EXISTS latency_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    gap_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1)),
    gap_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt32) CODEC(ZSTD(1)),
    duration_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (tenant, bucket, model)
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS latency_day_from_requests;

TRUNCATE TABLE IF EXISTS latency_day;

INSERT INTO latency_day
(bucket, tenant, model, requests, ttft_count, gap_count, ttft_state, gap_state, duration_state)
SELECT
    bucket,
    tenant,
    model,
    sum(source.requests),
    sum(source.ttft_count),
    sum(source.gap_count),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.ttft_state),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.gap_state),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.duration_state)
FROM requests_day AS source
GROUP BY bucket, tenant, model
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS latency_day_from_requests TO latency_day AS
SELECT
    toDate(started_at, 'UTC') AS bucket,
    tenant,
    model,
    count() AS requests,
    count(ttft_ns) AS ttft_count,
    sum(length(gaps)) AS gap_count,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(ttft_ns), isNotNull(ttft_ns)) AS ttft_state,
    quantilesDDStateArray(0.01, 0.5, 0.9, 0.95, 0.99)(gaps) AS gap_state,
    quantilesDDState(0.01, 0.5, 0.9, 0.95, 0.99)(duration_ns) AS duration_state
FROM requests
GROUP BY bucket, tenant, model;

-- The same over all tenants, made of what reaches `latency_day`: a few hundred states a month instead of a few
-- hundred thousand.
CREATE TABLE IF NOT EXISTS model_latency_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    model LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    gap_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1)),
    gap_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt32) CODEC(ZSTD(1)),
    duration_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (bucket, model)
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS model_latency_day_from_latency_day;

TRUNCATE TABLE IF EXISTS model_latency_day;

INSERT INTO model_latency_day
(bucket, model, requests, ttft_count, gap_count, ttft_state, gap_state, duration_state)
SELECT
    bucket,
    model,
    sum(source.requests),
    sum(source.ttft_count),
    sum(source.gap_count),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.ttft_state),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.gap_state),
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.duration_state)
FROM latency_day AS source
GROUP BY bucket, model
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS model_latency_day_from_latency_day TO model_latency_day AS
SELECT
    bucket,
    model,
    sum(source.requests) AS requests,
    sum(source.ttft_count) AS ttft_count,
    sum(source.gap_count) AS gap_count,
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.ttft_state) AS ttft_state,
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.gap_state) AS gap_state,
    quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(source.duration_state) AS duration_state
FROM latency_day AS source
GROUP BY bucket, model;
