-- Requests, failures, refusals and latency by time step of a chart.
SELECT
    intDiv(toUnixTimestamp(started_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    count() AS request_count,
    countIf(outcome = 'error') AS error_count,
    countIf(outcome = 'rejected') AS rejected_count,
    countIf(outcome = 'ok') AS answered_count,
    quantileIf(0.5)(ifNull(ttft_ns, duration_ns), outcome = 'ok') AS p50_ns,
    quantileIf(0.95)(ifNull(ttft_ns, duration_ns), outcome = 'ok') AS p95_ns
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND arm != 'shadow'
GROUP BY step_start
ORDER BY step_start
