-- Why: sums by hour and by day were each made from the requests, at as much processor time as those by minute.
-- Undo: DROP the two views that are made here, and CREATE those of 0030 again.
-- Locks: as 0013: collectors must be stopped, readers wait for nothing. All of it is metadata.
--
-- Sums of sums are the same sums, so no row is written or counted again: what comes from now on goes another way into
-- the tables that are there. A batch counts once at each remove, by a token of its own. Between the removal of a view
-- and the next one a batch would miss a table, and one that is repeated after it would not be known there.

DROP VIEW IF EXISTS requests_hour_from_requests;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_hour_from_requests_minute TO requests_hour AS
SELECT
    toStartOfHour(source.bucket) AS bucket,
    tenant,
    team,
    project,
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
FROM requests_minute AS source
GROUP BY bucket, tenant, team, project, model, outcome;

DROP VIEW IF EXISTS requests_day_from_requests;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_day_from_requests_hour TO requests_day AS
SELECT
    toDate(source.bucket, 'UTC') AS bucket,
    tenant,
    team,
    project,
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
FROM requests_hour AS source
GROUP BY bucket, tenant, team, project, model, outcome;
