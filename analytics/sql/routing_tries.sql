-- Every try of the requests that needed more than one: at which target, why, and what became of it.
SELECT
    intDiv(toUnixTimestamp(started_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    pool AS pool_label,
    replica AS replica_label,
    reason AS reason_label,
    outcome AS outcome_label,
    error_code AS error_label,
    count() AS try_count,
    sum(ifNull(cost_usd, 0)) AS cost_sum
FROM attempts
WHERE number > 0
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY step_start, pool_label, replica_label, reason_label, outcome_label, error_label
ORDER BY step_start, pool_label, replica_label, reason_label, outcome_label, error_label
LIMIT {row_limit:UInt32}
