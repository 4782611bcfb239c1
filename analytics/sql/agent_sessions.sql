-- Agents' sessions (conversation_id), most expensive first: turns, tools, tokens, cost, and the longest run of
-- identical tool calls (same tool and arguments). Calls that the gateway made itself (execute_tool) have a cost and are
-- not turns. A session belongs to one key. Money in pico-USD.
SELECT
    tenant AS tenant_label,
    key_id AS key_label,
    conversation_id AS session_label,
    any(team) AS team_label,
    any(end_user) AS user_label,
    anyIf(tags['repo'], tags['repo'] != '') AS repo_label,
    anyIf(tags['branch'], tags['branch'] != '') AS branch_label,
    anyIf(tags['pr'], tags['pr'] != '') AS pr_label,
    uniqExactIf(tags['agent'], tags['agent'] != '') AS agent_count,
    arraySort(groupUniqArray(8)(model)) AS models,
    toInt64(toUnixTimestamp64Milli(min(started_at))) AS began_ms,
    toInt64(toUnixTimestamp64Milli(max(started_at))) AS last_ms,
    countIf(operation != 'execute_tool') AS turn_count,
    countIf(outcome = 'error' OR outcome = 'rejected') AS failed_count,
    countIf(limit_name != '') AS limited_count,
    sum(if(operation = 'execute_tool', 0, toUInt64(ifNull(tool_calls, 0)))) AS called_count,
    sum({{input_sum}}) AS input_sum,
    sum({{cached_sum}}) AS cached_sum,
    sum({{output_sum}}) AS output_sum,
    reinterpret(sum(ifNull(cost_usd, toDecimal64(0, 12))), 'Int128') AS cost_pico_sum,
    countIf(price_state IN ('unpriced', 'unknown_usage', 'partly_unpriced')) AS unpriced_count,
    arrayFlatten(
        arrayMap(turn -> turn.2, arraySort(groupArrayIf((started_at, tool_marks), operation != 'execute_tool')))
    ) AS marks,
    arrayMax(
        arrayMap(
            run -> length(run),
            arraySplit((mark, before) -> mark != before, marks, arraySlice(arrayPushFront(marks, 0), 1, length(marks)))
        )
    ) AS longest_run
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND conversation_id != ''
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY tenant_label, key_label, session_label
ORDER BY cost_pico_sum DESC, began_ms DESC, tenant_label, key_label, session_label
LIMIT {row_limit:UInt32}
