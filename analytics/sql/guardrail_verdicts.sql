-- Guardrail verdicts in their recorded form, and the number of requests with each.
SELECT
    tenant AS tenant_label,
    toString(arrayJoin(verdicts)) AS verdict_label,
    count() AS request_count
FROM requests
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND notEmpty(verdicts)
GROUP BY tenant_label, verdict_label
