-- The time (Unix s) up to which single requests were deleted by a tenant's retention rule, and the tenant. It is the
-- same for every {team} of the tenant.
SELECT
    toUnixTimestamp(max(deleted_before)) AS deleted_until,
    argMax(tenant, deleted_before) AS deleted_tenant
FROM retention FINAL
WHERE table_name = 'requests'
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR table_name = 'requests')
