-- The sampled choices with the largest regret: request, time, and the decision with its alternatives.
SELECT
    toString(request_id) AS request_label,
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    tenant AS tenant_label,
    model AS model_label,
    pool AS pool_label,
    route_decision AS decision_json
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND position(route_decision, '"regret_ms"') > 0
ORDER BY JSONExtractFloat(route_decision, 'replica', 'outcome', 'regret_ms') DESC, started_at, request_id
LIMIT {row_limit:UInt32}
