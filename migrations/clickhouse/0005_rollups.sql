-- Why: sums of requests by minute, hour and day, so that dashboards never scan rows; and the values filters offer.
-- Undo: DROP the views ending in _from_requests, then requests_minute, requests_hour, requests_day, distinct_values.
-- Locks: nothing; requests that came before are not in the rollups (they exist from the first migration on).

-- Keyed by low-cardinality dimensions only, and each filled from `requests` itself: a rollup of a rollup would
-- lose exactly-once at its second hop. NULL money and tokens are summed as 0 and counted apart.
CREATE TABLE IF NOT EXISTS requests_minute
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    team LowCardinality(String),
    project LowCardinality(String),
    model LowCardinality(String),
    outcome LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, UInt64),
    cached_input_tokens SimpleAggregateFunction(sum, UInt64),
    output_tokens SimpleAggregateFunction(sum, UInt64),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    charged_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64),
    unknown_usage_requests SimpleAggregateFunction(sum, UInt64),
    streamed_requests SimpleAggregateFunction(sum, UInt64),
    gpu_ns SimpleAggregateFunction(sum, UInt64),
    ttft_sum_ns SimpleAggregateFunction(sum, UInt64),
    ttft_count SimpleAggregateFunction(sum, UInt64),
    gap_count SimpleAggregateFunction(sum, UInt64),
    duration_sum_ns SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (tenant, bucket, model, team, project, outcome)
TTL bucket + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_minute_from_requests TO requests_minute AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS bucket,
    tenant,
    team,
    project,
    model,
    outcome,
    count() AS requests,
    sum(
          ifNull(tokens_input_text, 0)
        + ifNull(tokens_input_audio, 0)
        + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0)
        + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0)
        + ifNull(tokens_cache_write_1h, 0)
    ) AS input_tokens,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_input_tokens,
    sum(
          ifNull(tokens_output_text, 0)
        + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0)
        + ifNull(tokens_output_image, 0)
    ) AS output_tokens,
    sum(ifNull(source.cost_usd, 0)) AS cost_usd,
    sum(ifNull(source.charged_usd, 0)) AS charged_usd,
    countIf(isNull(source.cost_usd) AND outcome != 'rejected') AS unpriced_requests,
    countIf(
        outcome != 'rejected'
        AND isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image,
            tokens_cache_read_text, tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h,
            tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
        ))
    ) AS unknown_usage_requests,
    countIf(stream) AS streamed_requests,
    sum(
        ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0)
    ) AS gpu_ns,
    sum(ifNull(ttft_ns, 0)) AS ttft_sum_ns,
    count(ttft_ns) AS ttft_count,
    sum(length(gaps)) AS gap_count,
    sum(duration_ns) AS duration_sum_ns
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

CREATE TABLE IF NOT EXISTS requests_hour
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    team LowCardinality(String),
    project LowCardinality(String),
    model LowCardinality(String),
    outcome LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, UInt64),
    cached_input_tokens SimpleAggregateFunction(sum, UInt64),
    output_tokens SimpleAggregateFunction(sum, UInt64),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    charged_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64),
    unknown_usage_requests SimpleAggregateFunction(sum, UInt64),
    streamed_requests SimpleAggregateFunction(sum, UInt64),
    gpu_ns SimpleAggregateFunction(sum, UInt64),
    ttft_sum_ns SimpleAggregateFunction(sum, UInt64),
    ttft_count SimpleAggregateFunction(sum, UInt64),
    gap_count SimpleAggregateFunction(sum, UInt64),
    duration_sum_ns SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (tenant, bucket, model, team, project, outcome)
TTL bucket + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_hour_from_requests TO requests_hour AS
SELECT
    toStartOfHour(toDateTime(started_at, 'UTC')) AS bucket,
    tenant,
    team,
    project,
    model,
    outcome,
    count() AS requests,
    sum(
          ifNull(tokens_input_text, 0)
        + ifNull(tokens_input_audio, 0)
        + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0)
        + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0)
        + ifNull(tokens_cache_write_1h, 0)
    ) AS input_tokens,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_input_tokens,
    sum(
          ifNull(tokens_output_text, 0)
        + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0)
        + ifNull(tokens_output_image, 0)
    ) AS output_tokens,
    sum(ifNull(source.cost_usd, 0)) AS cost_usd,
    sum(ifNull(source.charged_usd, 0)) AS charged_usd,
    countIf(isNull(source.cost_usd) AND outcome != 'rejected') AS unpriced_requests,
    countIf(
        outcome != 'rejected'
        AND isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image,
            tokens_cache_read_text, tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h,
            tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
        ))
    ) AS unknown_usage_requests,
    countIf(stream) AS streamed_requests,
    sum(
        ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0)
    ) AS gpu_ns,
    sum(ifNull(ttft_ns, 0)) AS ttft_sum_ns,
    count(ttft_ns) AS ttft_count,
    sum(length(gaps)) AS gap_count,
    sum(duration_ns) AS duration_sum_ns
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

-- Days are kept for good, with sketches (DDSketch, relative error 1 %) at 0.5, 0.9, 0.95, 0.99 of the time to the
-- first token and the duration in nanoseconds, and of the gaps in 10 us units.
CREATE TABLE IF NOT EXISTS requests_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    tenant LowCardinality(String),
    team LowCardinality(String),
    project LowCardinality(String),
    model LowCardinality(String),
    outcome LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, UInt64),
    cached_input_tokens SimpleAggregateFunction(sum, UInt64),
    output_tokens SimpleAggregateFunction(sum, UInt64),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    charged_usd SimpleAggregateFunction(sum, Decimal(38, 12)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64),
    unknown_usage_requests SimpleAggregateFunction(sum, UInt64),
    streamed_requests SimpleAggregateFunction(sum, UInt64),
    gpu_ns SimpleAggregateFunction(sum, UInt64),
    ttft_sum_ns SimpleAggregateFunction(sum, UInt64),
    ttft_count SimpleAggregateFunction(sum, UInt64),
    gap_count SimpleAggregateFunction(sum, UInt64),
    duration_sum_ns SimpleAggregateFunction(sum, UInt64),
    ttft_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1)),
    gap_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt32) CODEC(ZSTD(1)),
    duration_state AggregateFunction(quantilesDD(0.01, 0.5, 0.9, 0.95, 0.99), UInt64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (tenant, bucket, model, team, project, outcome)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_day_from_requests TO requests_day AS
SELECT
    toDate(started_at, 'UTC') AS bucket,
    tenant,
    team,
    project,
    model,
    outcome,
    count() AS requests,
    sum(
          ifNull(tokens_input_text, 0)
        + ifNull(tokens_input_audio, 0)
        + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0)
        + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0)
        + ifNull(tokens_cache_write_1h, 0)
    ) AS input_tokens,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_input_tokens,
    sum(
          ifNull(tokens_output_text, 0)
        + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0)
        + ifNull(tokens_output_image, 0)
    ) AS output_tokens,
    sum(ifNull(source.cost_usd, 0)) AS cost_usd,
    sum(ifNull(source.charged_usd, 0)) AS charged_usd,
    countIf(isNull(source.cost_usd) AND outcome != 'rejected') AS unpriced_requests,
    countIf(
        outcome != 'rejected'
        AND isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image,
            tokens_cache_read_text, tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h,
            tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
        ))
    ) AS unknown_usage_requests,
    countIf(stream) AS streamed_requests,
    sum(
        ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0)
    ) AS gpu_ns,
    sum(ifNull(ttft_ns, 0)) AS ttft_sum_ns,
    count(ttft_ns) AS ttft_count,
    sum(length(gaps)) AS gap_count,
    sum(duration_ns) AS duration_sum_ns,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(ttft_ns), isNotNull(ttft_ns)) AS ttft_state,
    quantilesDDStateArray(0.01, 0.5, 0.9, 0.95, 0.99)(gaps) AS gap_state,
    quantilesDDState(0.01, 0.5, 0.9, 0.95, 0.99)(duration_ns) AS duration_state
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

-- What the filters of a page offer, without scanning: one row per kind, tenant and value. End users are left out,
-- there may be millions.
CREATE TABLE IF NOT EXISTS distinct_values
(
    kind LowCardinality(String), -- 'tenant', 'team', 'project', 'key_id', 'model', 'route', 'provider', 'replica'
    tenant LowCardinality(String),
    value String,
    last_seen SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (kind, tenant, value)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS distinct_values_from_requests TO distinct_values AS
SELECT
    pair.1 AS kind,
    tenant,
    pair.2 AS value,
    max(at) AS last_seen
FROM
(
    SELECT
        tenant,
        toDateTime(started_at, 'UTC') AS at,
        arrayJoin([
            ('tenant', toString(tenant)),
            ('team', toString(team)),
            ('project', toString(project)),
            ('key_id', toString(key_id)),
            ('model', toString(model)),
            ('route', toString(route)),
            ('provider', toString(provider)),
            ('replica', toString(replica))
        ]) AS pair
    FROM requests
)
WHERE value != ''
GROUP BY kind, tenant, value;
