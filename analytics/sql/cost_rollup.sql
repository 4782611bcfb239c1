-- Requests, tokens and cost from sums, by any of tenant, team, project and model ({by}) and by period: {starts} are the
-- periods' first seconds, ascending, all on the rollup's grain. Money in pico-USD.
-- The whole days from {first_day} to {end_day} (Unix seconds; none where these are equal) come from {days}, requests_day
-- or tenant_model_day, and must lie in one period where {rollup} is finer; the rest from {rollup}, a table of sums.
-- A row of sums of which no request has a price tells what unpriced ones used; of mixed_count requests it does not.
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    toInt64(roundDown(at, {starts:Array(UInt32)})) AS period_start,
    sum(requests) AS request_count,
    sumIf(requests, outcome = 'rejected') AS rejected_count,
    sum(input_tokens) AS input_sum,
    sum(cached_input_tokens) AS cached_input_sum,
    sum(output_tokens) AS output_sum,
    reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum,
    reinterpret(sum(charged_usd), 'Int128') AS charged_pico_sum,
    sum(unpriced_requests) AS unpriced_count,
    sumIf(input_tokens + output_tokens, unpriced_requests > 0 AND unpriced_requests = requests) AS unpriced_token_sum,
    sumIf(unpriced_requests, unpriced_requests < requests) AS mixed_count,
    sum(unknown_usage_requests) AS unknown_usage_count,
    sum(gpu_ns) AS gpu_sum
FROM
(
    SELECT
        tenant, team, project, model, outcome, toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, requests, input_tokens,
        cached_input_tokens, output_tokens, cost_usd, charged_usd, unpriced_requests, unknown_usage_requests, gpu_ns
    FROM {days:Identifier}
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({first_day:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end_day:UInt32}, 'UTC')
        AND {first_day:UInt32} < {end_day:UInt32} -- else nothing is read, here as below
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    UNION ALL
    SELECT
        tenant, team, project, model, outcome, toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, requests, input_tokens,
        cached_input_tokens, output_tokens, cost_usd, charged_usd, unpriced_requests, unknown_usage_requests, gpu_ns
    FROM {rollup:Identifier}
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND ({start:UInt32} < {first_day:UInt32} OR {end:UInt32} > {end_day:UInt32})
        AND (toDateTime(bucket, 'UTC') < toDateTime({first_day:UInt32}, 'UTC')
            OR toDateTime(bucket, 'UTC') >= toDateTime({end_day:UInt32}, 'UTC'))
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
)
GROUP BY tenant_label, team_label, project_label, model_label, period_start
LIMIT {line_limit:UInt32}
