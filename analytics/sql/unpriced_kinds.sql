-- What the price cards of the requests that reached a model lack, by tenant and model: kinds of tokens, of requests that
-- are billed without these, and service tiers, of requests that have no cost at all.
SELECT
    tenant,
    model,
    countIf(notEmpty(unpriced_leaves) AND cost_usd IS NOT NULL) AS partly_count,
    arraySort(groupUniqArrayArray(unpriced_leaves)) AS leaves,
    arraySort(groupUniqArrayIf(service_tier, cost_usd IS NULL AND service_tier NOT IN ('', 'batch'))) AS tiers
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND outcome != 'rejected'
    AND (notEmpty(unpriced_leaves) OR (cost_usd IS NULL AND service_tier NOT IN ('', 'batch')))
GROUP BY tenant, model
ORDER BY tenant, model
