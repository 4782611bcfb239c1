-- Requests that reached a target, by time step, pool, target, model and route, with cached prompt tokens. Answers from
-- the response cache reached no target.
SELECT
    intDiv(toUnixTimestamp(started_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    pool AS pool_label,
    replica AS replica_label,
    model AS model_label,
    route AS route_label,
    count() AS request_count,
    countIf(outcome = 'error') AS error_count,
    countIf(attempts > 1) AS retried_count,
    sum({{input_sum}}) AS input_sum,
    sum({{cached_sum}}) AS cached_sum,
    count(ttft_ns) AS ttft_count,
    sum(ifNull(ttft_ns, 0)) AS ttft_sum
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome != 'rejected'
    AND cache NOT IN ('hit', 'semantic_hit')
GROUP BY step_start, pool_label, replica_label, model_label, route_label
