-- What is listed of requests that requests_found.sql found, told by their tenants and nanoseconds ({page_tenants} and
-- {page_moments}, which run parallel), in the same order.
WITH
    (
        ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0)
        + ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0) + ifNull(tokens_output_image, 0)
    ) AS total_tokens
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
    isNull(coalesce(
        tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text, tokens_cache_read_audio,
        tokens_cache_write_5m, tokens_cache_write_1h
    )) AS has_no_input,
    ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0) AS input_sum,
    ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0) AS cached_sum,
    isNull(coalesce(
        tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
    )) AS has_no_output,
    ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0) + ifNull(tokens_output_audio, 0)
        + ifNull(tokens_output_image, 0) AS output_sum,
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
