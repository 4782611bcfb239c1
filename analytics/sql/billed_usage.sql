-- Requests sent to a provider, by day (UTC), target, model as requested and as answered, tier and price, to compare
-- with its bill. `above` is the number of {thresholds} that the input exceeds. Answers from the response cache and
-- requests that reached no model are excluded. `is_uncertain`: the usage is estimated or unknown.
SELECT
    toString(toDate(started_at, 'UTC')) AS day_label,
    replica AS target_label,
    model AS model_label,
    model_version AS version_label,
    if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS tier_label,
    price_version AS price_label,
    count_method = 'estimate' OR price_state = 'unknown_usage' AS is_uncertain,
    {{thresholds_passed}} AS above,
    count() AS request_count,
    sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum,
    {{leaf_sums}} AS leaf_sums
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND provider IN {providers:Array(String)}
    AND outcome != 'rejected'
    AND price_state != 'failed'
    AND cache NOT IN ('hit', 'semantic_hit')
GROUP BY day_label, target_label, model_label, version_label, tier_label, price_label, is_uncertain, above
