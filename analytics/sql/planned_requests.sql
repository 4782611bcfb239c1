-- A range's answered requests of a model, for the planner: start, tenant, lengths and cached tokens. Copies to a
-- rollout's candidate (`_platform`) are included only if that tenant is asked for.
SELECT
    toUnixTimestamp64Nano(started_at) AS at_ns,
    tenant,
    conversation_id,
    {{input_sum}} AS input_sum,
    {{cached_sum}} AS cached_sum,
    {{output_sum}} AS output_sum
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND input_sum > 0
    AND output_sum > 0
ORDER BY started_at, request_id
LIMIT {row_limit:UInt32}
