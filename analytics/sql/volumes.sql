-- Requests, tokens and cost by tenant and model, and of all together (the row where is_total = 1), in one read,
-- so that the parts add up to the total also while rows arrive.
-- {rollup} is requests_minute, requests_hour, requests_day or tenant_model_day; start and end are Unix seconds on its
-- grain.
SELECT
    grouping(tenant) AS is_total,
    tenant,
    model,
    sum(requests) AS request_count,
    sumIf(requests, outcome = 'error') AS error_count,
    sumIf(requests, outcome = 'rejected') AS rejected_count,
    sumIf(requests, outcome = 'cancelled') AS cancelled_count,
    sum(streamed_requests) AS streamed_count,
    sum(unpriced_requests) AS unpriced_count,
    sum(unknown_usage_requests) AS unknown_usage_count,
    sum(input_tokens) AS input_sum,
    sum(cached_input_tokens) AS cached_input_sum,
    sum(output_tokens) AS output_sum,
    sum(cost_usd) AS cost_sum,
    sum(ttft_count) AS ttft_samples,
    sum(gap_count) AS gap_samples
FROM {rollup:Identifier}
WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY GROUPING SETS ((), (tenant, model))
ORDER BY is_total DESC, cost_sum DESC, request_count DESC, tenant, model
LIMIT {row_limit:UInt32}
