-- The attempts of one request in order, if it had more than one.
SELECT
    number,
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    duration_ns,
    reason,
    outcome AS outcome_label,
    status AS status_code,
    error_code,
    model AS model_label,
    provider AS provider_label,
    replica AS replica_label,
    region,
    ttft_ns,
    length(gaps) AS gap_count,
    cost_usd,
    cost_basis
FROM attempts
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND request_id = {request_id:UUID}
ORDER BY number
