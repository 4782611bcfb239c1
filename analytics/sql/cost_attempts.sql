-- What the tries of requests came to that had more than one (retries, hedges, continuations, what a cascade set aside),
-- and what the same requests were recorded to cost: the difference is what no payer was told. By the labels of the
-- request ({by}) and by period: {starts} are the periods' first seconds, ascending. A try may begin a day later at most.
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(has({by:Array(String)}, 'user'), end_user, '') AS user_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    if(has({by:Array(String)}, 'provider'), provider, '') AS provider_label,
    if(has({by:Array(String)}, 'adapter'), adapter, '') AS adapter_label,
    if(has({by:Array(String)}, 'prompt'), prompt_name, '') AS prompt_label,
    if(has({by:Array(String)}, 'prompt_version'), prompt_version, '') AS prompt_version_label,
    if(has({by:Array(String)}, 'price'), price_version, '') AS price_label,
    if(has({by:Array(String)}, 'operation'), operation, '') AS operation_label,
    if(has({by:Array(String)}, 'session'), conversation_id, '') AS session_label,
    if(has({by:Array(String)}, 'repo'), tags['repo'], '') AS repo_label,
    if(has({by:Array(String)}, 'branch'), tags['branch'], '') AS branch_label,
    if(has({by:Array(String)}, 'pr'), tags['pr'], '') AS pr_label,
    if(has({by:Array(String)}, 'agent'), tags['agent'], '') AS agent_label,
    if(has({by:Array(String)}, 'tool'), arrayStringConcat(arraySort(arrayDistinct(tools)), ','), '') AS tool_label,
    if(has({by:Array(String)}, 'tag:'), tags[{tag:String}], '') AS tag_label,
    if(
        has({by:Array(String)}, 'tags'),
        arrayStringConcat(arraySort(arrayMap(pair -> concat(pair.1, '=', pair.2), CAST(tags, 'Array(Tuple(String, String))'))), ','),
        ''
    ) AS tags_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start,
    toInt64(sum(tries.attempt_count)) - toInt64(count()) AS more_count,
    sum(tries.attempt_sum) - sum(ifNull(cost_usd, toDecimal64(0, 12))) AS more_cost_sum,
    greatest(toInt64(sum(tries.unpriced_count)) - toInt64(countIf(price_state IN ('unpriced', 'unknown_usage'))), 0)
        AS unpriced_more_count
FROM
(
    SELECT
        request_id, started_at, tenant, team, project, key_id, end_user, model, provider, adapter, prompt_name,
        prompt_version, price_version, operation, tags, conversation_id, tools, cost_usd, price_state
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
        AND requests.attempts > 1
) AS tried
INNER JOIN
(
    SELECT
        request_id,
        count() AS attempt_count,
        sum(ifNull(cost_usd, toDecimal64(0, 12))) AS attempt_sum,
        countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count
    FROM attempts
    WHERE number > 0
        AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32} + 86400, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    GROUP BY request_id
) AS tries USING (request_id)
GROUP BY
    tenant_label, team_label, project_label, key_label, user_label, model_label, provider_label, adapter_label,
    prompt_label, prompt_version_label, price_label, operation_label, session_label, repo_label, branch_label, pr_label,
    agent_label, tool_label, tag_label, tags_label, period_start
LIMIT {line_limit:UInt32}
