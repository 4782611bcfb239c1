-- Why: pages ask for days by tenant and model, and had to add up teams, projects and outcomes each time.
-- Undo: DROP the view, then tenant_model_day.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing.

-- `requests_day` without teams and projects, of which it says ''. Copying starts from an empty table and before its
-- view exists, so a file that was cut half-way can be run again.
CREATE TABLE IF NOT EXISTS tenant_model_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    tenant LowCardinality(String),
    team LowCardinality(String) ALIAS '',
    project LowCardinality(String) ALIAS '',
    model LowCardinality(String),
    outcome LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    cached_input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    charged_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    unknown_usage_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    streamed_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    gpu_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_sum_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ttft_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    gap_count SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    duration_sum_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (tenant, bucket, model, outcome)
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS tenant_model_day_from_requests_day;

TRUNCATE TABLE IF EXISTS tenant_model_day;

INSERT INTO tenant_model_day
(
    bucket, tenant, model, outcome, requests, input_tokens, cached_input_tokens, output_tokens, cost_usd, charged_usd,
    unpriced_requests, unknown_usage_requests, streamed_requests, gpu_ns, ttft_sum_ns, ttft_count, gap_count,
    duration_sum_ns
)
SELECT
    bucket,
    tenant,
    model,
    outcome,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.cached_input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.charged_usd),
    sum(source.unpriced_requests),
    sum(source.unknown_usage_requests),
    sum(source.streamed_requests),
    sum(source.gpu_ns),
    sum(source.ttft_sum_ns),
    sum(source.ttft_count),
    sum(source.gap_count),
    sum(source.duration_sum_ns)
FROM requests_day AS source
GROUP BY bucket, tenant, model, outcome
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS tenant_model_day_from_requests_day TO tenant_model_day AS
SELECT
    bucket,
    tenant,
    model,
    outcome,
    sum(source.requests) AS requests,
    sum(source.input_tokens) AS input_tokens,
    sum(source.cached_input_tokens) AS cached_input_tokens,
    sum(source.output_tokens) AS output_tokens,
    sum(source.cost_usd) AS cost_usd,
    sum(source.charged_usd) AS charged_usd,
    sum(source.unpriced_requests) AS unpriced_requests,
    sum(source.unknown_usage_requests) AS unknown_usage_requests,
    sum(source.streamed_requests) AS streamed_requests,
    sum(source.gpu_ns) AS gpu_ns,
    sum(source.ttft_sum_ns) AS ttft_sum_ns,
    sum(source.ttft_count) AS ttft_count,
    sum(source.gap_count) AS gap_count,
    sum(source.duration_sum_ns) AS duration_sum_ns
FROM requests_day AS source
GROUP BY bucket, tenant, model, outcome;
