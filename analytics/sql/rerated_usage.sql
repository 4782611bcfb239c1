-- What recorded requests cost by other cards, by the groups that entries of the books are of, in pico-USD, exactly. The
-- classes of price_classes.sql come as columns, with the rates of each (pico-USD per token, in the order of the kinds of
-- tokens; below 0: none) and the fee per request. Left out is what keeps its recorded price: requests of no class, those
-- that failed or lack a count, kept answers, and those that use nothing that has a price.
SELECT
    tenant,
    team,
    project,
    key_id,
    model,
    provider,
    price_version,
    period_start,
    count() AS requests,
    sum(recorded) AS recorded_pico_usd,
    sum(asked) - recorded_pico_usd AS amount_pico_usd,
    -toInt64(countIf(was_unpriced)) AS unpriced_requests,
    toInt64(countIf(is_partly)) - toInt64(countIf(was_partly)) AS partly_unpriced_requests,
    sum(
        arraySum(arraySlice(missing, 1, {input_leaves})) - arraySum(arraySlice(was_missing, 1, {input_leaves}))
    ) AS unpriced_input_tokens,
    sum(
        arraySum(arraySlice(missing, {input_leaves} + 1, {output_leaves}))
        - arraySum(arraySlice(was_missing, {input_leaves} + 1, {output_leaves}))
    ) AS unpriced_output_tokens,
    sumIf(asked - recorded, is_estimated) AS estimated_pico_usd,
    toInt64(countIf(was_unpriced AND is_estimated)) AS estimated_requests
FROM
(
    SELECT
        *,
        arrayMap((count, rate) -> if(rate < 0, 0, count), tokens, rates) AS paid,
        arraySum(arraySlice(paid, 1, {token_leaves})) > 0 AS by_tokens,
        arraySum(arraySlice(paid, {token_leaves} + 1)) > 0 AS by_units,
        -- As `missing_prices` has it: a card sells by tokens or by units, and what it does not sell by lacks no price.
        arrayMap(
            (count, rate, place) -> if(
                rate >= 0
                OR (place <= {token_leaves} AND by_units AND NOT by_tokens)
                OR (place > {token_leaves} AND NOT by_units AND (by_tokens OR fee > 0)),
                0, count
            ),
            tokens, rates, arrayEnumerate(rates)
        ) AS missing,
        multiIf(
            was_unpriced, tokens,
            was_partly, arrayMap((count, leaf) -> if(has(unpriced_leaves, leaf), count, 0), tokens, {leaves:Array(String)}),
            arrayMap(count -> toInt64(0), tokens)
        ) AS was_missing,
        arraySum(missing) > 0 AS is_partly,
        arraySum(arrayMap((count, rate) -> count * rate, paid, rates)) + fee AS asked
    FROM
    (
        SELECT
            tenant,
            team,
            project,
            key_id,
            model,
            provider,
            price_version,
            toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start,
            unpriced_leaves,
            price_state = 'unpriced' AS was_unpriced,
            price_state = 'partly_unpriced' AS was_partly,
            count_method = 'estimate' AS is_estimated,
            toInt128(ifNull(cost_usd, toDecimal64(0, 12)) * toDecimal128(1000000000000, 0)) AS recorded,
            {leaf_counts} AS tokens,
            if(has({own_tenants:Array(String)}, tenant), tenant, '') AS class_tenant,
            model AS class_model,
            if(has({own_providers:Array(String)}, provider), provider, '') AS class_provider,
            if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS class_service_tier,
            provider = 'engine' OR attribution_method != '' AS class_is_engine,
            arrayCount(
                above -> arraySum(arraySlice(tokens, 1, {input_leaves})) > above, {thresholds:Array(UInt64)}
            ) AS tier_number,
            arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}) AS segment
        FROM requests
        WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
            AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
            AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
            AND outcome != 'rejected'
            AND price_state != 'failed'
            AND cache NOT IN ('hit', 'semantic_hit')
            AND (
                isNotNull({any_unit})
                OR (
                    isNotNull({any_input})
                    AND (operation IN ('embeddings', 'rerank', 'score') OR isNotNull({any_output}))
                )
            )
    ) AS used
    INNER JOIN
    (
        SELECT
            class.1 AS class_tenant,
            class.2 AS class_model,
            class.3 AS class_provider,
            class.4 AS class_service_tier,
            class.5 AS class_is_engine,
            class.6 AS tier_number,
            class.7 AS segment,
            class.8 AS rates,
            class.9 AS fee
        FROM
        (
            SELECT arrayJoin(arrayZip(
                {class_tenants:Array(String)},
                {class_models:Array(String)},
                {class_providers:Array(String)},
                {class_service_tiers:Array(String)},
                {class_engines:Array(UInt8)},
                {class_tiers:Array(UInt64)},
                {class_segments:Array(UInt64)},
                {class_rates:Array(Array(Int128))},
                {class_fees:Array(Int128)}
            )) AS class
        )
    ) AS classes USING (
        class_tenant, class_model, class_provider, class_service_tier, class_is_engine, tier_number, segment
    )
    WHERE arraySum(missing) = 0 OR fee > 0 OR arraySum(paid) > 0
)
GROUP BY tenant, team, project, key_id, model, provider, price_version, period_start
ORDER BY tenant, team, project, key_id, model, provider, price_version, period_start
