-- Price classes of requests for repricing: within a class, any price card has the same price per token of a kind.
-- Tenants, providers and regions without cards of their own ({own_tenants}, {own_providers}, {own_regions}) are merged.
-- `tier_number` is the number of {thresholds} that the input exceeds, `segment` the number of {changes} (Unix ns)
-- before the request.
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
