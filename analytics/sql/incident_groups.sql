-- Requests of a range by outcome and attributes, to find what failures have in common.
SELECT
    toStartOfMinute(started_at) AS minute,
    outcome AS outcome_label,
    error_code AS error_label,
    upstream_status AS upstream_code,
    upstream_error AS upstream_kind,
    any(upstream_message) AS upstream_said,
    pool AS pool_label,
    replica AS replica_label,
    model AS model_label,
    tenant AS tenant_label,
    key_id AS key_label,
    rollout AS rollout_label,
    arm AS arm_label,
    limit_name AS limit_label,
    count() AS request_count
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND arm != 'shadow'
GROUP BY
    minute, outcome_label, error_label, upstream_code, upstream_kind, pool_label, replica_label, model_label,
    tenant_label, key_label, rollout_label, arm_label, limit_label
ORDER BY outcome_label = 'ok', request_count DESC, minute
LIMIT {row_limit:UInt32}
