-- Sampled choices by pool and policy: actual time to first token, and the time predicted for the chosen and for the
-- best target. Milliseconds. Choices without an answer are excluded.
SELECT
    pool AS pool_label,
    policy AS policy_label,
    count() AS sample_count,
    countIf(chosen != best) AS other_count,
    avg(regret) AS regret_mean,
    quantileExact(0.95)(regret) AS regret_p95,
    avg(abs(missed)) AS missed_mean,
    avg(came) AS came_mean
FROM
(
    SELECT
        pool,
        JSONExtractString(route_decision, 'replica', 'policy') AS policy,
        JSONExtractString(route_decision, 'replica', 'chosen') AS chosen,
        JSONExtractKeys(route_decision, 'replica', 'predicted_ms')[1] AS best,
        JSONExtract(route_decision, 'replica', 'outcome', 'regret_ms', 'Nullable(Float64)') AS regret,
        JSONExtract(route_decision, 'replica', 'outcome', 'error_ms', 'Nullable(Float64)') AS missed,
        JSONExtract(route_decision, 'replica', 'outcome', 'ttft_ms', 'Nullable(Float64)') AS came
    FROM requests
    WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
        AND position(route_decision, '"regret_ms"') > 0
)
WHERE isNotNull(regret)
GROUP BY pool_label, policy_label
ORDER BY sample_count DESC, pool_label, policy_label
