-- What price cards lack, by tenant and model: kinds of tokens (of requests that are billed without them), and service
-- tiers (of requests without cost).
SELECT
    tenant,
    model,
    arraySort(groupUniqArrayArray(unpriced_leaves)) AS leaves,
    arraySort(groupUniqArrayIf(service_tier, price_state = 'unpriced' AND service_tier NOT IN ('', 'batch'))) AS tiers
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND price_state IN ('partly_unpriced', 'unpriced')
    AND (notEmpty(unpriced_leaves) OR service_tier NOT IN ('', 'batch'))
GROUP BY tenant, model
ORDER BY tenant, model
