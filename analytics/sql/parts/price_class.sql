-- The price class of a request: within a class, any price card has the same price per token of a kind.
if(has({own_tenants:Array(String)}, tenant), tenant, '') AS class_tenant,
model AS class_model,
if(has({own_providers:Array(String)}, provider), provider, '') AS class_provider,
if(has({own_regions:Array(String)}, region), region, '') AS class_region,
if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS class_service_tier,
provider = 'engine' OR attribution_method != '' AS class_is_engine,
{{thresholds_passed}} AS tier_number,
arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}) AS segment
