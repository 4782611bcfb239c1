-- Requests that reached a model, in groups with equal prices per token by any card, so that a card's price of the sums
-- is the sum of its prices, and every cost can be recomputed. Rejected ones are excluded. Regions without cards
-- ({own_regions}) are merged. `shape` packs what a price depends on: bits 0 and 1: input and output are known; 2: only
-- input is billed; 3: a self-hosted engine; 4: an answer from the response cache; 5: priced as a batch; 6: estimated
-- tokens; 7: counted in units; from bit 8: number of {thresholds} that the input exceeds; from bit 20: number of
-- {changes} (Unix ns) before it; from bit 40: the used kinds of usage.
SELECT
    tenant AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(
        has({by:Array(String)}, 'tags'), toJSONString(arraySort(CAST(tags, 'Array(Tuple(String, String))'))), ''
    ) AS tags_label,
    model AS model_label,
    provider AS provider_label,
    if(has({own_regions:Array(String)}, region), region, '') AS region_label,
    price_version AS price_label,
    cost_basis AS basis_label,
    price_state AS state_label,
    if(price_state = 'partly_unpriced', arrayStringConcat(arraySort(unpriced_leaves), ','), '') AS unpriced_labels,
    service_tier AS tier_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start,
    {{leaf_bits}} * 1099511627776
        + toUInt64(isNotNull({{any_input}}))
        + toUInt64(isNotNull({{any_output}})) * 2
        + toUInt64(operation IN ('embeddings', 'rerank', 'score')) * 4
        + toUInt64(provider = 'engine' OR attribution_method != '') * 8
        + toUInt64(cache IN ('hit', 'semantic_hit')) * 16
        + toUInt64(endsWith(price_version, '#batch')) * 32
        + toUInt64(count_method = 'estimate') * 64
        + toUInt64(isNotNull({{any_unit}})) * 128
        + toUInt64({{thresholds_passed}}) * 256
        + toUInt64(arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}))
            * 1048576 AS shape,
    count() AS request_count,
    countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count,
    sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum,
    {{leaf_sums}} AS leaf_sums
FROM requests
WHERE {{requests_asked_for}}
    AND outcome != 'rejected'
GROUP BY
    tenant_label, team_label, project_label, key_label, tags_label, model_label, provider_label, region_label, price_label,
    basis_label, state_label, unpriced_labels, tier_label, period_start, shape
LIMIT {line_limit:UInt32}
