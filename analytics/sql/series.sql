-- Requests, tokens and cost over time by tenant or by model. The groups that cost most keep their names, the
-- rest are added up as one (is_rest = 1).
-- {rollup} is requests_minute, requests_hour or requests_day; {dimension} is tenant or model.
WITH leaders AS
(
    SELECT {dimension:Identifier} AS label
    FROM {rollup:Identifier}
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    GROUP BY label
    ORDER BY sum(cost_usd) DESC, sum(requests) DESC, label
    LIMIT {leader_limit:UInt32}
)
SELECT
    intDiv(toUnixTimestamp(toDateTime(bucket, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
        + {origin:UInt32} AS step_start,
    {dimension:Identifier} NOT IN (SELECT label FROM leaders) AS is_rest,
    if(is_rest, '', {dimension:Identifier}) AS label,
    sum(requests) AS request_count,
    sum(input_tokens) AS input_sum,
    sum(output_tokens) AS output_sum,
    sum(cost_usd) AS cost_sum,
    sum(unpriced_requests) AS unpriced_count
FROM {rollup:Identifier}
WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY step_start, is_rest, label
ORDER BY step_start, is_rest, label
