-- The classes of requests that are priced again: within one, any price card asks the same for a token of a kind. Tenants
-- and providers that no card is made for ({own_tenants}, {own_providers}) are one class. `tier_number` is how many of
-- {thresholds} the input exceeds, `segment` how many {changes} (Unix nanoseconds) lie before the request.
SELECT
    if(has({own_tenants:Array(String)}, tenant), tenant, '') AS class_tenant,
    model AS class_model,
    if(has({own_providers:Array(String)}, provider), provider, '') AS class_provider,
    if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS class_service_tier,
    provider = 'engine' OR attribution_method != '' AS class_is_engine,
    arrayCount(
        above -> {input_sum} > above, {thresholds:Array(UInt64)}
    ) AS tier_number,
    arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}) AS segment
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome != 'rejected'
GROUP BY class_tenant, class_model, class_provider, class_service_tier, class_is_engine, tier_number, segment
ORDER BY ALL
