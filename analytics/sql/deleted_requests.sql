-- Up to when (Unix seconds) single requests have been deleted by a tenant's own rule, and whose rule that was. A rule is
-- a tenant's: who asks about one {team} of it is told the same.
SELECT
    toUnixTimestamp(max(deleted_before)) AS deleted_until,
    argMax(tenant, deleted_before) AS deleted_tenant
FROM retention FINAL
WHERE table_name = 'requests'
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR table_name = 'requests')
