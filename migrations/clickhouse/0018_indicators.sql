-- Why: objectives count requests by how fast they were against any of the kept steps, and no rollup tells that.
-- Undo: DROP the two views, then indicators_minute and indicators_hour.
-- Locks: nothing; requests that came before are not counted (objectives begin with this migration).

-- What each request did, to the steps that thresholds of objectives are taken from (contracts/objectives.py): a value
-- of N means "above N tenths of a millisecond and not above the next step"; -1 was not measured. `fate` is ok, failed
-- (the service's fault: a status of 500 and more, or a provider's rate limit) or cancelled (the client left); what the
-- caller did wrong is not in here. Gaps count by the 95th percentile of the request's own (nearest rank).
CREATE TABLE IF NOT EXISTS indicators_minute
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    route LowCardinality(String),
    prompt_class LowCardinality(String),
    fate LowCardinality(String),
    ttft_above Int32 CODEC(T64, ZSTD(1)),
    gap_above Int32 CODEC(T64, ZSTD(1)),
    duration_above Int32 CODEC(T64, ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (tenant, bucket, model, route, prompt_class, fate, ttft_above, gap_above, duration_above)
TTL bucket + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS indicators_minute_from_requests TO indicators_minute AS
WITH
    [
        0, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1500,
        2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 15000, 20000, 25000, 30000, 40000, 50000, 60000, 80000,
        100000, 120000, 150000, 200000, 250000, 300000, 400000, 500000, 600000, 800000, 1000000, 1200000, 1500000,
        2000000, 2500000, 3000000, 4000000, 5000000, 6000000, 8000000
    ] AS steps
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS bucket,
    tenant,
    model,
    route,
    multiIf(
        isNull(prompt_tokens), 'unknown',
        prompt_tokens < 1024, 'short',
        prompt_tokens < 8192, 'medium',
        prompt_tokens < 32768, 'long',
        'very_long'
    ) AS prompt_class,
    multiIf(outcome = 'ok', 'ok', outcome = 'cancelled', 'cancelled', 'failed') AS fate,
    if(isNull(ttft_ns), -1, toInt32(roundDown(intDiv(toInt64(ifNull(ttft_ns, 0)) - 1, 100000), steps))) AS ttft_above,
    if(
        empty(gaps),
        -1,
        toInt32(roundDown(intDiv(toInt64(arraySort(gaps)[toUInt32(ceil(length(gaps) * 0.95))]) - 1, 10), steps))
    ) AS gap_above,
    toInt32(roundDown(intDiv(toInt64(duration_ns) - 1, 100000), steps)) AS duration_above,
    count() AS requests
FROM
(
    SELECT
        started_at,
        tenant,
        model,
        route,
        outcome,
        ttft_ns,
        gaps,
        duration_ns,
        if(
            isNull(coalesce(tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
                tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h)),
            NULL,
              ifNull(tokens_input_text, 0)
            + ifNull(tokens_input_audio, 0)
            + ifNull(tokens_input_image, 0)
            + ifNull(tokens_cache_read_text, 0)
            + ifNull(tokens_cache_read_audio, 0)
            + ifNull(tokens_cache_write_5m, 0)
            + ifNull(tokens_cache_write_1h, 0)
        ) AS prompt_tokens
    FROM requests
    WHERE outcome IN ('ok', 'cancelled') OR status >= 500 OR error_code = 'upstream_rate_limited'
)
GROUP BY bucket, tenant, model, route, prompt_class, fate, ttft_above, gap_above, duration_above;

-- Error budgets cover 28 or 30 days, which minutes are not kept for.
CREATE TABLE IF NOT EXISTS indicators_hour
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    route LowCardinality(String),
    prompt_class LowCardinality(String),
    fate LowCardinality(String),
    ttft_above Int32 CODEC(T64, ZSTD(1)),
    gap_above Int32 CODEC(T64, ZSTD(1)),
    duration_above Int32 CODEC(T64, ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (tenant, bucket, model, route, prompt_class, fate, ttft_above, gap_above, duration_above)
TTL bucket + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS indicators_hour_from_indicators_minute TO indicators_hour AS
SELECT
    toStartOfHour(source.bucket) AS bucket,
    tenant,
    model,
    route,
    prompt_class,
    fate,
    ttft_above,
    gap_above,
    duration_above,
    sum(source.requests) AS requests
FROM indicators_minute AS source
GROUP BY bucket, tenant, model, route, prompt_class, fate, ttft_above, gap_above, duration_above;
