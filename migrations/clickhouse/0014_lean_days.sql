-- Why: the sketches have moved to latency_day (0013); what a tenant spent in a day is read without its models and teams.
-- Undo: DROP both views, then tenant_cost_day; ADD the three states to requests_day, and make its view as in 0005.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing.

DROP VIEW IF EXISTS requests_day_from_requests;

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
    sum(duration_ns) AS duration_sum_ns
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

ALTER TABLE requests_day
    DROP COLUMN IF EXISTS ttft_state,
    DROP COLUMN IF EXISTS gap_state,
    DROP COLUMN IF EXISTS duration_state;

-- A month of a thousand tenants is thirty thousand rows. NULL money and tokens are summed as 0 and counted apart.
CREATE TABLE IF NOT EXISTS tenant_cost_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    tenant LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    charged_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    unknown_usage_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (tenant, bucket)
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS tenant_cost_day_from_requests_day;

TRUNCATE TABLE IF EXISTS tenant_cost_day;

INSERT INTO tenant_cost_day
(
    bucket, tenant, requests, input_tokens, output_tokens, cost_usd, charged_usd, unpriced_requests,
    unknown_usage_requests
)
SELECT
    bucket,
    tenant,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.charged_usd),
    sum(source.unpriced_requests),
    sum(source.unknown_usage_requests)
FROM requests_day AS source
GROUP BY bucket, tenant
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS tenant_cost_day_from_requests_day TO tenant_cost_day AS
SELECT
    bucket,
    tenant,
    sum(source.requests) AS requests,
    sum(source.input_tokens) AS input_tokens,
    sum(source.output_tokens) AS output_tokens,
    sum(source.cost_usd) AS cost_usd,
    sum(source.charged_usd) AS charged_usd,
    sum(source.unpriced_requests) AS unpriced_requests,
    sum(source.unknown_usage_requests) AS unknown_usage_requests
FROM requests_day AS source
GROUP BY bucket, tenant;
