-- Why: pages about all tenants asked for hours of a day or month, and found them in every granule of sums by tenant.
-- Undo: DROP the four views, then model_steps_day, model_steps_hour, model_hour, tenant_hour; DROP the ALIAS columns.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing. Copying takes a second for two million rows.
--
-- A table says '' of what it does not tell apart. Every copy starts from an empty table and before its view exists, so
-- a file that was cut half-way can be run again.

-- What charts over time show, by tenant and by model alone: a week of a thousand tenants is 168,000 rows. Charts of
-- more than 14 days have steps of days, so tenants' hours are kept for 16.
CREATE TABLE IF NOT EXISTS tenant_hour
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    team LowCardinality(String) ALIAS '',
    project LowCardinality(String) ALIAS '',
    model LowCardinality(String) ALIAS '',
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (bucket, tenant)
TTL bucket + INTERVAL 16 DAY
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS tenant_hour_from_requests_hour;

TRUNCATE TABLE IF EXISTS tenant_hour;

INSERT INTO tenant_hour
(
    bucket, tenant, requests, input_tokens, output_tokens, cost_usd, unpriced_requests
)
SELECT
    bucket,
    tenant,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.unpriced_requests)
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
    sum(source.unpriced_requests) AS unpriced_requests
FROM requests_hour AS source
GROUP BY bucket, tenant;

CREATE TABLE IF NOT EXISTS model_hour
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String) ALIAS '',
    team LowCardinality(String) ALIAS '',
    project LowCardinality(String) ALIAS '',
    model LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    input_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    output_tokens SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    cost_usd SimpleAggregateFunction(sum, Decimal(38, 12)) CODEC(ZSTD(1)),
    unpriced_requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (bucket, model)
TTL bucket + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS model_hour_from_requests_hour;

TRUNCATE TABLE IF EXISTS model_hour;

INSERT INTO model_hour
(
    bucket, model, requests, input_tokens, output_tokens, cost_usd, unpriced_requests
)
SELECT
    bucket,
    model,
    sum(source.requests),
    sum(source.input_tokens),
    sum(source.output_tokens),
    sum(source.cost_usd),
    sum(source.unpriced_requests)
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
    sum(source.unpriced_requests) AS unpriced_requests
FROM requests_hour AS source
GROUP BY bucket, model;

-- By tenant alone days are in `tenant_cost_day`, which says '' of the rest too.
ALTER TABLE tenant_cost_day
    ADD COLUMN IF NOT EXISTS team LowCardinality(String) ALIAS '',
    ADD COLUMN IF NOT EXISTS project LowCardinality(String) ALIAS '',
    ADD COLUMN IF NOT EXISTS model LowCardinality(String) ALIAS '';

-- How many requests took how long (0018), each time for itself and over all tenants: `measure_name` is ttft,
-- inter_token
-- or end_to_end, which counts what was answered whole.
CREATE TABLE IF NOT EXISTS model_steps_hour
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String) ALIAS '',
    model LowCardinality(String),
    prompt_class LowCardinality(String),
    measure_name LowCardinality(String),
    above Int32 CODEC(T64, ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (bucket, measure_name, model, prompt_class, above)
TTL bucket + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS model_steps_hour_from_indicators_hour;

TRUNCATE TABLE IF EXISTS model_steps_hour;

INSERT INTO model_steps_hour (bucket, model, prompt_class, measure_name, above, requests)
SELECT
    bucket,
    model,
    prompt_class,
    measure.1,
    measure.2,
    sum(source.requests)
FROM indicators_hour AS source
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', if(fate = 'ok', duration_above, -1))] AS measure
WHERE measure.2 >= 0
GROUP BY bucket, model, prompt_class, measure.1, measure.2
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS model_steps_hour_from_indicators_hour TO model_steps_hour AS
SELECT
    bucket,
    model,
    prompt_class,
    measure.1 AS measure_name,
    measure.2 AS above,
    sum(source.requests) AS requests
FROM indicators_hour AS source
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', if(fate = 'ok', duration_above, -1))] AS measure
WHERE measure.2 >= 0
GROUP BY bucket, model, prompt_class, measure.1, measure.2;

CREATE TABLE IF NOT EXISTS model_steps_day
(
    bucket Date CODEC(Delta(2), ZSTD(1)),
    tenant LowCardinality(String) ALIAS '',
    model LowCardinality(String),
    prompt_class LowCardinality(String),
    measure_name LowCardinality(String),
    above Int32 CODEC(T64, ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (bucket, measure_name, model, prompt_class, above)
TTL bucket + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000;

DROP VIEW IF EXISTS model_steps_day_from_indicators_hour;

TRUNCATE TABLE IF EXISTS model_steps_day;

INSERT INTO model_steps_day (bucket, model, prompt_class, measure_name, above, requests)
SELECT
    toDate(source.bucket, 'UTC') AS day,
    model,
    prompt_class,
    measure.1,
    measure.2,
    sum(source.requests)
FROM indicators_hour AS source
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', if(fate = 'ok', duration_above, -1))] AS measure
WHERE measure.2 >= 0
GROUP BY day, model, prompt_class, measure.1, measure.2
SETTINGS insert_deduplicate = 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS model_steps_day_from_indicators_hour TO model_steps_day AS
SELECT
    toDate(source.bucket, 'UTC') AS bucket,
    model,
    prompt_class,
    measure.1 AS measure_name,
    measure.2 AS above,
    sum(source.requests) AS requests
FROM indicators_hour AS source
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', if(fate = 'ok', duration_above, -1))] AS measure
WHERE measure.2 >= 0
GROUP BY bucket, model, prompt_class, measure.1, measure.2;
