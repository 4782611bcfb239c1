-- The columns of requests that requests_found.sql found, selected by tenant and start in ns (parallel arrays
-- {page_tenants} and {page_moments}), in the same order.
WITH
    ({{token_sum}}) AS total_tokens
SELECT
    request_id,
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    duration_ns,
    tenant AS tenant_label,
    team AS team_label,
    project AS project_label,
    key_id,
    end_user,
    model AS model_label,
    requested_model,
    route AS route_label,
    provider AS provider_label,
    replica AS replica_label,
    outcome AS outcome_label,
    status AS status_code,
    error_code,
    finish_reason,
    stream,
    attempts,
    cache AS cache_label,
    ttft_ns,
    isNull({{any_input}}) AS has_no_input,
    {{input_sum}} AS input_sum,
    {{cached_sum}} AS cached_sum,
    isNull({{any_output}}) AS has_no_output,
    {{output_sum}} AS output_sum,
    cost_usd
FROM requests
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND (tenant, started_at) IN
    (
        SELECT page.1, fromUnixTimestamp64Nano(page.2, 'UTC')
        FROM (SELECT arrayJoin(arrayZip({page_tenants:Array(String)}, {page_moments:Array(Int64)})) AS page)
    )
ORDER BY {sort:Identifier} DESC NULLS LAST, started_at DESC, request_id
LIMIT {row_limit:UInt32}
