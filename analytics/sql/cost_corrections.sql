-- Sums of booked entries for a range's usage, by labels ({by}) and by period of the usage: {starts} are the periods'
-- starts (Unix s), ascending. Money in pico-USD; counts are differences. Labels that entries lack (users, tags,
-- prompts) are ''.
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    if(has({by:Array(String)}, 'provider'), provider, '') AS provider_label,
    if(has({by:Array(String)}, 'price'), price_version, '') AS price_label,
    '' AS operation_label,
    '' AS user_label,
    '' AS adapter_label,
    '' AS prompt_label,
    '' AS prompt_version_label,
    '' AS session_label,
    '' AS repo_label,
    '' AS branch_label,
    '' AS pr_label,
    '' AS agent_label,
    '' AS tool_label,
    '' AS tag_label,
    '' AS tags_label,
    toInt64(roundDown(toUnixTimestamp(used_at), {starts:Array(UInt32)})) AS period_start,
    reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum,
    sum(source.no_price_requests) AS unpriced_count,
    sum(source.partly_unpriced_requests) AS partly_unpriced_count,
    sum(source.unpriced_input_tokens) AS unpriced_input_sum,
    sum(source.unpriced_output_tokens) AS unpriced_output_sum,
    sum(source.estimated_requests) AS estimated_count,
    reinterpret(sum(source.estimated_usd), 'Int128') AS estimated_pico_sum
FROM book_entries AS source FINAL
WHERE used_at >= toDateTime({start:UInt32}, 'UTC')
    AND used_at < toDateTime({end:UInt32}, 'UTC')
    AND {{of_whom}}
GROUP BY
    tenant_label, team_label, project_label, key_label, model_label, provider_label, price_label, period_start
LIMIT {line_limit:UInt32}
