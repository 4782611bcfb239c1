-- Up to when (Unix seconds) single requests have been deleted by a tenant's own rule, and whose rule that was.
SELECT
    toUnixTimestamp(max(deleted_before)) AS deleted_until,
    argMax(tenant, deleted_before) AS deleted_tenant
FROM retention FINAL
WHERE table_name = 'requests'
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
