-- Cost of agents' sessions by repository, pull request, developer (end user, else key), subagent or tool: {by}. Turns
-- that call several tools count for the combination of these tools. Money in pico-USD.
SELECT
    tenant AS tenant_label,
    multiIf(
        {by:String} = 'repo', tags['repo'],
        {by:String} = 'pr', if(tags['pr'] = '', '', concat(tags['repo'], ' ', tags['pr'])),
        {by:String} = 'developer', if(end_user = '', key_id, end_user),
        {by:String} = 'agent', tags['agent'],
        if(operation = 'execute_tool', model, arrayStringConcat(arraySort(arrayDistinct(tools)), ', '))
    ) AS group_label,
    uniqExact(key_id, conversation_id) AS session_count,
    countIf(operation != 'execute_tool') AS turn_count,
    sum({{input_sum}}) AS input_sum,
    sum({{cached_sum}}) AS cached_sum,
    sum({{output_sum}}) AS output_sum,
    reinterpret(sum(ifNull(cost_usd, toDecimal64(0, 12))), 'Int128') AS cost_pico_sum
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND conversation_id != ''
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY tenant_label, group_label
ORDER BY cost_pico_sum DESC, tenant_label, group_label
LIMIT {row_limit:UInt32}
