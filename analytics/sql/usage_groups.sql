-- Requests that a model saw, in groups within which any price card asks the same for a token: so that a card's price of
-- the sums is the sum of its prices, and every cost can be computed again from cards. Rejected ones are left out. Regions
-- that no card is made for ({own_regions}) are one.
-- `shape` packs what a price depends on: bits 0-14 which kinds of usage there are, 15 and 16 whether input and output are
-- known, 17 input alone is billed, 18 an engine of ours, 19 a kept answer, 20 priced as a batch, 21 counted by estimate,
-- 22 counted in units; from bit 24 the number of {thresholds} the input exceeds; from bit 36 how many {changes} (Unix
-- nanoseconds) lie before.
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
    {{leaf_bits}}
        + toUInt64(isNotNull({{any_input}})) * 32768
        + toUInt64(isNotNull({{any_output}})) * 65536
        + toUInt64(operation IN ('embeddings', 'rerank', 'score')) * 131072
        + toUInt64(provider = 'engine' OR attribution_method != '') * 262144
        + toUInt64(cache IN ('hit', 'semantic_hit')) * 524288
        + toUInt64(endsWith(price_version, '#batch')) * 1048576
        + toUInt64(count_method = 'estimate') * 2097152
        + toUInt64(isNotNull({{any_unit}})) * 4194304
        + toUInt64({{thresholds_passed}}) * 16777216
        + toUInt64(arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}))
            * 68719476736 AS shape,
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
