-- Requests, tokens and cost from sums, by any of tenant, team, project and model ({by}) and by period: {starts} are the
-- periods' first seconds, ascending, all on the rollup's grain.
-- {rollup} is requests_minute, requests_hour, requests_day or tenant_model_day.
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(bucket, 'UTC')), {starts:Array(UInt32)})) AS period_start,
    sum(requests) AS request_count,
    sumIf(requests, outcome = 'rejected') AS rejected_count,
    sum(input_tokens) AS input_sum,
    sum(cached_input_tokens) AS cached_input_sum,
    sum(output_tokens) AS output_sum,
    sum(cost_usd) AS cost_sum,
    sum(charged_usd) AS charged_sum,
    sum(unpriced_requests) AS unpriced_count,
    sum(unknown_usage_requests) AS unknown_usage_count,
    sum(gpu_ns) AS gpu_sum
FROM {rollup:Identifier}
WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY tenant_label, team_label, project_label, model_label, period_start
LIMIT {line_limit:UInt32}
