-- The classes of requests that are priced again: within one, any price card asks the same for a token of a kind. Tenants,
-- providers and regions that no card is made for ({own_tenants}, {own_providers}, {own_regions}) are one class.
-- `tier_number` is how many of {thresholds} the input exceeds, `segment` how many {changes} (Unix nanoseconds) lie before
-- the request.
SELECT
    {{price_class}}
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome != 'rejected'
GROUP BY
    class_tenant, class_model, class_provider, class_region, class_service_tier, class_is_engine, tier_number, segment
ORDER BY ALL
