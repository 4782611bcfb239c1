-- The result of routing_answered.sql for whole hours. Its expressions are those of the projection `answered_hour`
-- (migration 0027), so that ClickHouse reads sums instead of rows for all tenants; for one tenant, which the projection
-- lacks, it reads rows.
SELECT
    intDiv(toUnixTimestamp(toStartOfHour(started_at)) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
        + {origin:UInt32} AS step_start,
    pool AS pool_label,
    replica AS replica_label,
    model AS model_label,
    route AS route_label,
    countIf(outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')) AS request_count,
    countIf(outcome = 'error' AND cache NOT IN ('hit', 'semantic_hit')) AS error_count,
    countIf(attempts > 1 AND outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')) AS retried_count,
    sumIf(
        {{input_sum}},
        outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')
    ) AS input_sum,
    sumIf(
        {{cached_sum}},
        outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')
    ) AS cached_sum,
    countIf(isNotNull(ttft_ns) AND outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')) AS ttft_count,
    sumIf(ifNull(ttft_ns, 0), outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')) AS ttft_sum
FROM requests
WHERE toStartOfHour(started_at) >= toDateTime({start:UInt32}, 'UTC')
    AND toStartOfHour(started_at) < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY step_start, pool_label, replica_label, model_label, route_label
HAVING request_count > 0
