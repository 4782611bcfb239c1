-- Why: times of all tenants counted copies to a rollout's candidate, which are the platform's own and nobody waited for.
-- Undo: the same with the statements of 0013 and 0023 for these three tables.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing but see no times while a table is filled again.
-- Copying takes a second for two million rows of hours, and for some fifty thousand states of days.
--
-- The tables are those that do not tell tenants apart; where `tenant` is a column, questions leave `_platform` out.
-- Every copy starts from an empty table and before its view exists, so a file that was cut half-way can be run again.

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
WHERE tenant != '_platform'
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
WHERE tenant != '_platform'
GROUP BY bucket, model;

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
    AND tenant != '_platform'
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
    AND tenant != '_platform'
GROUP BY bucket, model, prompt_class, measure.1, measure.2;

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
    AND tenant != '_platform'
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
    AND tenant != '_platform'
GROUP BY bucket, model, prompt_class, measure.1, measure.2;
