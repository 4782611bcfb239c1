-- Requests of both arms of a rollout, and shadow copies with their originals: a row per request, sampled by id if there
-- are more than {row_limit}.
SELECT
    arm,
    model AS model_name,
    outcome AS outcome_label,
    ttft_ns,
    duration_ns,
    if(empty(gaps), NULL, arraySum(gaps) / length(gaps) / 100) AS gap_ms,
    tokens_output_text + ifNull(tokens_output_reasoning, 0) AS output_tokens,
    toFloat64(cost_usd) AS cost,
    JSONExtract(route_decision, 'rollout_answer', 'refused', 'Nullable(Bool)') AS is_refused,
    JSONExtract(route_decision, 'rollout_answer', 'failed', 'Nullable(Bool)') AS has_failed,
    JSONExtractRaw(route_decision, 'shadow') AS shadow_json
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND rollout = {rollout:String}
    AND outcome IN ('ok', 'error')
ORDER BY cityHash64(request_id)
LIMIT {row_limit:UInt32}
