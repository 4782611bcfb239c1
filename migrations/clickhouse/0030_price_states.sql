-- Why: a failed request, one of unknown usage and one without a price were one count; estimated amounts were in none.
-- Undo: DROP and CREATE the seven views as in 0005, 0014, 0021 and 0023; DROP the columns that are added here.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing but see no charts meanwhile.
-- Estimates and the tables of charts are copied, a second for two million rows; all else is metadata.
--
-- Rows of sums from before are told apart by what they say already (see the DEFAULTs below): nothing of them is written
-- again. How much of them was estimated is added from the requests that are still kept. The file begins by removing
-- those sums and the views that would derive others from them, so one that was cut half-way can be run again.

DROP VIEW IF EXISTS tenant_hour_from_requests_hour;
DROP VIEW IF EXISTS model_hour_from_requests_hour;
DROP VIEW IF EXISTS tenant_model_day_from_requests_day;
DROP VIEW IF EXISTS tenant_cost_day_from_requests_day;

-- The one definition of why a request has the cost that it has. `failed`: it failed and nobody owes anything for it.
-- `unknown_usage`: nobody knows what it used. `unpriced`: what it used is known, and no card had a price for it.
-- `partly_unpriced`: one kind of token had no price (`unpriced_leaves`), the rest has. Rows from before `free` and
-- `unknown_usage` were written (0028) are told by their outcome and usage.
-- Tokens without a price are those that no amount stands for, whatever the reason.
ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS price_state LowCardinality(String) ALIAS multiIf(
        outcome = 'rejected', 'rejected',
        cost_basis = 'free', 'failed',
        isNotNull(cost_usd) AND notEmpty(unpriced_leaves), 'partly_unpriced',
        isNotNull(cost_usd), 'priced',
        cost_basis = 'unknown_usage', 'unknown_usage',
        outcome = 'error'
        AND isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
        )), 'failed',
        isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h
        ))
        OR (
            operation NOT IN ('embeddings', 'rerank', 'score')
            AND isNull(coalesce(
                tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
            ))
        ), 'unknown_usage',
        'unpriced'
    ),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens UInt64 ALIAS multiIf(
        price_state = 'priced', 0,
        price_state = 'partly_unpriced',
            if(has(unpriced_leaves, 'input_text'), ifNull(tokens_input_text, 0), 0)
            + if(has(unpriced_leaves, 'input_audio'), ifNull(tokens_input_audio, 0), 0)
            + if(has(unpriced_leaves, 'input_image'), ifNull(tokens_input_image, 0), 0)
            + if(has(unpriced_leaves, 'cache_read_text'), ifNull(tokens_cache_read_text, 0), 0)
            + if(has(unpriced_leaves, 'cache_read_audio'), ifNull(tokens_cache_read_audio, 0), 0)
            + if(has(unpriced_leaves, 'cache_write_5m'), ifNull(tokens_cache_write_5m, 0), 0)
            + if(has(unpriced_leaves, 'cache_write_1h'), ifNull(tokens_cache_write_1h, 0), 0),
            ifNull(tokens_input_text, 0)
            + ifNull(tokens_input_audio, 0)
            + ifNull(tokens_input_image, 0)
            + ifNull(tokens_cache_read_text, 0)
            + ifNull(tokens_cache_read_audio, 0)
            + ifNull(tokens_cache_write_5m, 0)
            + ifNull(tokens_cache_write_1h, 0)
    ),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens UInt64 ALIAS multiIf(
        price_state = 'priced', 0,
        price_state = 'partly_unpriced',
            if(has(unpriced_leaves, 'output_text'), ifNull(tokens_output_text, 0), 0)
            + if(has(unpriced_leaves, 'output_reasoning'), ifNull(tokens_output_reasoning, 0), 0)
            + if(has(unpriced_leaves, 'output_audio'), ifNull(tokens_output_audio, 0), 0)
            + if(has(unpriced_leaves, 'output_image'), ifNull(tokens_output_image, 0), 0),
            ifNull(tokens_output_text, 0)
            + ifNull(tokens_output_reasoning, 0)
            + ifNull(tokens_output_audio, 0)
            + ifNull(tokens_output_image, 0)
    );

-- The same of further tries, which have neither an operation nor kinds of tokens without a price.
ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS price_state LowCardinality(String) ALIAS multiIf(
        outcome = 'rejected', 'rejected',
        cost_basis = 'free', 'failed',
        isNotNull(cost_usd), 'priced',
        cost_basis = 'unknown_usage', 'unknown_usage',
        isNotNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
        )), 'unpriced',
        if(outcome = 'error', 'failed', 'unknown_usage')
    );

-- What is derived from sums is emptied here and filled again below.
TRUNCATE TABLE IF EXISTS tenant_hour;
TRUNCATE TABLE IF EXISTS model_hour;
TRUNCATE TABLE IF EXISTS tenant_cost_day;
TRUNCATE TABLE IF EXISTS tenant_model_day;

ALTER TABLE requests_minute
    DROP COLUMN IF EXISTS estimated_requests,
    DROP COLUMN IF EXISTS estimated_usd;

ALTER TABLE requests_minute
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', unknown_usage_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', 0, unknown_usage_requests) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT toUInt64(greatest(toInt64(unpriced_requests) - unknown_usage_requests, 0)) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(no_price_requests > 0 AND unpriced_requests < requests, no_price_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, input_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, output_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE requests_hour
    DROP COLUMN IF EXISTS estimated_requests,
    DROP COLUMN IF EXISTS estimated_usd;

ALTER TABLE requests_hour
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', unknown_usage_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', 0, unknown_usage_requests) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT toUInt64(greatest(toInt64(unpriced_requests) - unknown_usage_requests, 0)) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(no_price_requests > 0 AND unpriced_requests < requests, no_price_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, input_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, output_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE requests_day
    DROP COLUMN IF EXISTS estimated_requests,
    DROP COLUMN IF EXISTS estimated_usd;

ALTER TABLE requests_day
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', unknown_usage_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(outcome = 'error', 0, unknown_usage_requests) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT toUInt64(greatest(toInt64(unpriced_requests) - unknown_usage_requests, 0)) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(no_price_requests > 0 AND unpriced_requests < requests, no_price_requests, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, input_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64)
        DEFAULT if(unpriced_requests = requests, output_tokens, 0) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE tenant_model_day
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE tenant_cost_day
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE tenant_hour
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

ALTER TABLE model_hour
    ADD COLUMN IF NOT EXISTS failed_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS usage_unknown_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS no_price_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS untold_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS partly_unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS unpriced_output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS estimated_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1));

DROP VIEW IF EXISTS requests_minute_from_requests;

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
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
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
    countIf(price_state = 'failed') AS failed_requests,
    countIf(price_state = 'unknown_usage') AS usage_unknown_requests,
    countIf(price_state = 'unpriced') AS no_price_requests,
    toUInt64(0) AS untold_requests,
    countIf(price_state = 'partly_unpriced') AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    countIf(count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')) AS estimated_requests,
    sumIf(
        ifNull(source.cost_usd, 0), count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')
    ) AS estimated_usd
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

DROP VIEW IF EXISTS requests_hour_from_requests;

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
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
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
    countIf(price_state = 'failed') AS failed_requests,
    countIf(price_state = 'unknown_usage') AS usage_unknown_requests,
    countIf(price_state = 'unpriced') AS no_price_requests,
    toUInt64(0) AS untold_requests,
    countIf(price_state = 'partly_unpriced') AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    countIf(count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')) AS estimated_requests,
    sumIf(
        ifNull(source.cost_usd, 0), count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')
    ) AS estimated_usd
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

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
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
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
    countIf(price_state = 'failed') AS failed_requests,
    countIf(price_state = 'unknown_usage') AS usage_unknown_requests,
    countIf(price_state = 'unpriced') AS no_price_requests,
    toUInt64(0) AS untold_requests,
    countIf(price_state = 'partly_unpriced') AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    countIf(count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')) AS estimated_requests,
    sumIf(
        ifNull(source.cost_usd, 0), count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')
    ) AS estimated_usd
FROM requests AS source
GROUP BY bucket, tenant, team, project, model, outcome;

INSERT INTO requests_minute (bucket, tenant, team, project, model, outcome, estimated_requests, estimated_usd)
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS at,
    tenant,
    team,
    project,
    model,
    outcome,
    count(),
    sum(assumeNotNull(source.cost_usd))
FROM requests AS source
WHERE count_method = 'estimate'
    AND price_state IN ('priced', 'partly_unpriced')
    AND started_at >= now() - INTERVAL 7 DAY
GROUP BY at, tenant, team, project, model, outcome
SETTINGS insert_deduplicate = 0;

INSERT INTO requests_hour (bucket, tenant, team, project, model, outcome, estimated_requests, estimated_usd)
SELECT
    toStartOfHour(toDateTime(started_at, 'UTC')) AS at,
    tenant,
    team,
    project,
    model,
    outcome,
    count(),
    sum(assumeNotNull(source.cost_usd))
FROM requests AS source
WHERE count_method = 'estimate'
    AND price_state IN ('priced', 'partly_unpriced')
    AND started_at >= now() - INTERVAL 90 DAY
GROUP BY at, tenant, team, project, model, outcome
SETTINGS insert_deduplicate = 0;

INSERT INTO requests_day (bucket, tenant, team, project, model, outcome, estimated_requests, estimated_usd)
SELECT
    toDate(started_at, 'UTC') AS at,
    tenant,
    team,
    project,
    model,
    outcome,
    count(),
    sum(assumeNotNull(source.cost_usd))
FROM requests AS source
WHERE count_method = 'estimate'
    AND price_state IN ('priced', 'partly_unpriced')
GROUP BY at, tenant, team, project, model, outcome
SETTINGS insert_deduplicate = 0;

INSERT INTO tenant_model_day
(
    bucket, tenant, model, outcome, requests, input_tokens, cached_input_tokens, output_tokens, cost_usd,
    charged_usd, unpriced_requests, unknown_usage_requests, streamed_requests, gpu_ns, ttft_sum_ns, ttft_count,
    gap_count, duration_sum_ns, failed_requests, usage_unknown_requests, no_price_requests, untold_requests,
    partly_unpriced_requests, unpriced_input_tokens, unpriced_output_tokens, estimated_requests, estimated_usd
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
    sum(source.duration_sum_ns),
    sum(source.failed_requests),
    sum(source.usage_unknown_requests),
    sum(source.no_price_requests),
    sum(source.untold_requests),
    sum(source.partly_unpriced_requests),
    sum(source.unpriced_input_tokens),
    sum(source.unpriced_output_tokens),
    sum(source.estimated_requests),
    sum(source.estimated_usd)
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
    sum(source.duration_sum_ns) AS duration_sum_ns,
    sum(source.failed_requests) AS failed_requests,
    sum(source.usage_unknown_requests) AS usage_unknown_requests,
    sum(source.no_price_requests) AS no_price_requests,
    sum(source.untold_requests) AS untold_requests,
    sum(source.partly_unpriced_requests) AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    sum(source.estimated_requests) AS estimated_requests,
    sum(source.estimated_usd) AS estimated_usd
FROM requests_day AS source
GROUP BY bucket, tenant, model, outcome;

INSERT INTO tenant_cost_day
(
    bucket, tenant, requests, input_tokens, output_tokens, cost_usd, charged_usd, unpriced_requests,
    unknown_usage_requests, failed_requests, usage_unknown_requests, no_price_requests, untold_requests,
    partly_unpriced_requests, unpriced_input_tokens, unpriced_output_tokens, estimated_requests, estimated_usd
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
    sum(source.unknown_usage_requests),
    sum(source.failed_requests),
    sum(source.usage_unknown_requests),
    sum(source.no_price_requests),
    sum(source.untold_requests),
    sum(source.partly_unpriced_requests),
    sum(source.unpriced_input_tokens),
    sum(source.unpriced_output_tokens),
    sum(source.estimated_requests),
    sum(source.estimated_usd)
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
    sum(source.unknown_usage_requests) AS unknown_usage_requests,
    sum(source.failed_requests) AS failed_requests,
    sum(source.usage_unknown_requests) AS usage_unknown_requests,
    sum(source.no_price_requests) AS no_price_requests,
    sum(source.untold_requests) AS untold_requests,
    sum(source.partly_unpriced_requests) AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    sum(source.estimated_requests) AS estimated_requests,
    sum(source.estimated_usd) AS estimated_usd
FROM requests_day AS source
GROUP BY bucket, tenant;

INSERT INTO tenant_hour
(
    bucket, tenant, requests, input_tokens, output_tokens, cost_usd, unpriced_requests, failed_requests,
    usage_unknown_requests, no_price_requests, untold_requests, partly_unpriced_requests, unpriced_input_tokens,
    unpriced_output_tokens, estimated_requests, estimated_usd
)
SELECT
    bucket,
    tenant,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.unpriced_requests),
    sum(source.failed_requests),
    sum(source.usage_unknown_requests),
    sum(source.no_price_requests),
    sum(source.untold_requests),
    sum(source.partly_unpriced_requests),
    sum(source.unpriced_input_tokens),
    sum(source.unpriced_output_tokens),
    sum(source.estimated_requests),
    sum(source.estimated_usd)
FROM requests_hour AS source
WHERE bucket >= now() - INTERVAL 16 DAY
GROUP BY bucket, tenant
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS tenant_hour_from_requests_hour TO tenant_hour AS
SELECT
    bucket,
    tenant,
    sum(source.requests) AS requests,
    sum(source.input_tokens) AS input_tokens,
    sum(source.output_tokens) AS output_tokens,
    sum(source.cost_usd) AS cost_usd,
    sum(source.unpriced_requests) AS unpriced_requests,
    sum(source.failed_requests) AS failed_requests,
    sum(source.usage_unknown_requests) AS usage_unknown_requests,
    sum(source.no_price_requests) AS no_price_requests,
    sum(source.untold_requests) AS untold_requests,
    sum(source.partly_unpriced_requests) AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    sum(source.estimated_requests) AS estimated_requests,
    sum(source.estimated_usd) AS estimated_usd
FROM requests_hour AS source
GROUP BY bucket, tenant;

INSERT INTO model_hour
(
    bucket, model, requests, input_tokens, output_tokens, cost_usd, unpriced_requests, failed_requests,
    usage_unknown_requests, no_price_requests, untold_requests, partly_unpriced_requests, unpriced_input_tokens,
    unpriced_output_tokens, estimated_requests, estimated_usd
)
SELECT
    bucket,
    model,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.unpriced_requests),
    sum(source.failed_requests),
    sum(source.usage_unknown_requests),
    sum(source.no_price_requests),
    sum(source.untold_requests),
    sum(source.partly_unpriced_requests),
    sum(source.unpriced_input_tokens),
    sum(source.unpriced_output_tokens),
    sum(source.estimated_requests),
    sum(source.estimated_usd)
FROM requests_hour AS source
GROUP BY bucket, model
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS model_hour_from_requests_hour TO model_hour AS
SELECT
    bucket,
    model,
    sum(source.requests) AS requests,
    sum(source.input_tokens) AS input_tokens,
    sum(source.output_tokens) AS output_tokens,
    sum(source.cost_usd) AS cost_usd,
    sum(source.unpriced_requests) AS unpriced_requests,
    sum(source.failed_requests) AS failed_requests,
    sum(source.usage_unknown_requests) AS usage_unknown_requests,
    sum(source.no_price_requests) AS no_price_requests,
    sum(source.untold_requests) AS untold_requests,
    sum(source.partly_unpriced_requests) AS partly_unpriced_requests,
    sum(source.unpriced_input_tokens) AS unpriced_input_tokens,
    sum(source.unpriced_output_tokens) AS unpriced_output_tokens,
    sum(source.estimated_requests) AS estimated_requests,
    sum(source.estimated_usd) AS estimated_usd
FROM requests_hour AS source
GROUP BY bucket, model;
