-- The turns and tool calls of one session in order, with the fields that show why a prompt's prefix was not cached.
SELECT
    toString(request_id) AS request_label,
    toInt64(toUnixTimestamp64Nano(started_at)) AS began_ns,
    toInt64(duration_ns) AS took_ns,
    operation,
    model AS model_label,
    provider AS provider_label,
    region AS region_label,
    if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS service_tier_label,
    tags['agent'] AS agent_label,
    outcome,
    status,
    error_code AS error_label,
    finish_reason AS finish_label,
    limit_name AS limit_label,
    price_state AS state_label,
    toInt64({{input_sum}}) AS input_count,
    toInt64({{cached_sum}}) AS cached_count,
    toInt64(ifNull(tokens_cache_write_5m, 0)) AS written_5m_count,
    toInt64(ifNull(tokens_cache_write_1h, 0)) AS written_1h_count,
    toInt64({{output_sum}}) AS output_count,
    reinterpret(ifNull(cost_usd, toDecimal64(0, 12)), 'Int64') AS cost_pico,
    tools AS called,
    tool_marks AS marks,
    prompt_marks AS parts
FROM requests
WHERE tenant = {tenant:String}
    AND key_id = {key:String}
    AND conversation_id = {session:String}
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
ORDER BY began_ns, request_label
LIMIT {row_limit:UInt32}
