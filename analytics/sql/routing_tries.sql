-- All attempts of requests with more than one, and failed requests with a single attempt: target, reason and outcome.
-- Errors include the status of the target's response.
SELECT
    intDiv(toUnixTimestamp(tried_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    pool AS pool_label,
    replica AS replica_label,
    reason_name AS reason_label,
    outcome AS outcome_label,
    if(upstream_status IS NULL, error_code, concat(error_code, ' ', toString(upstream_status))) AS error_label,
    count() AS try_count,
    sum(ifNull(cost_usd, 0)) AS cost_sum
FROM
(
    SELECT started_at AS tried_at, pool, replica, toString(reason) AS reason_name, outcome, error_code, upstream_status,
        cost_usd
    FROM attempts
    WHERE number > 0
        AND started_at >= toDateTime({start:UInt32}, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    UNION ALL
    SELECT started_at AS tried_at, pool, replica, 'first' AS reason_name, outcome, error_code, upstream_status,
        NULL AS cost_usd
    FROM requests
    WHERE outcome = 'error' AND attempts = 1
        AND started_at >= toDateTime({start:UInt32}, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
)
GROUP BY step_start, pool_label, replica_label, reason_label, outcome_label, error_label
ORDER BY step_start, pool_label, replica_label, reason_label, outcome_label, error_label
LIMIT {row_limit:UInt32}
