-- Number of requests by tenant that passed through guardrails.
SELECT
    tenant AS tenant_label,
    count() AS request_count
FROM requests
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND guard_ns IS NOT NULL
GROUP BY tenant_label
