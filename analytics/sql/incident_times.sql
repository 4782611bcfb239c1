-- Latency of answered requests by target and rollout arm, before and since the time {turn}.
SELECT
    pool AS pool_label,
    replica AS replica_label,
    rollout AS rollout_label,
    arm AS arm_label,
    countIf(started_at < toDateTime64({turn:UInt32}, 9, 'UTC')) AS before_count,
    quantileIf(0.95)(ifNull(ttft_ns, duration_ns), started_at < toDateTime64({turn:UInt32}, 9, 'UTC')) AS before_p95,
    countIf(started_at >= toDateTime64({turn:UInt32}, 9, 'UTC')) AS since_count,
    quantileIf(0.95)(ifNull(ttft_ns, duration_ns), started_at >= toDateTime64({turn:UInt32}, 9, 'UTC')) AS since_p95
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome = 'ok'
    AND arm != 'shadow'
GROUP BY pool_label, replica_label, rollout_label, arm_label
ORDER BY since_count DESC
LIMIT {row_limit:UInt32}
