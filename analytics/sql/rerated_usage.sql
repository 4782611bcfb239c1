-- Exact cost (pico-USD) of recorded requests by other cards, by the groups of ledger entries. The classes of
-- price_classes.sql are parameters, with their rates (pico-USD per token in the order of the kinds of usage; negative:
-- none) and the fee per request. Requests that keep their recorded price are excluded: those without a class, failed
-- ones, those without counts, answers from the response cache, and those without priced usage. Requests of a class are
-- summed before they are multiplied by its rates, which takes far fewer sums. Used kinds and unpriced kinds are bit
-- sets: bit n is the nth kind of usage. A card sells by tokens or by units; kinds that it does not sell do not count as
-- unpriced (`missing_prices`).
SELECT
    tenant,
    team,
    project,
    key_id,
    model,
    provider,
    price_version,
    period_start,
    sum(request_count) AS requests,
    sum(recorded) AS recorded_pico_usd,
    sum(asked) - recorded_pico_usd AS amount_pico_usd,
    -sum(was_unpriced_count) AS unpriced_requests,
    sum(partly_count) AS partly_unpriced_requests,
    sum(arraySum((count, is_input) -> if(is_input, count, 0), missing, {{input_mask}}) - was_missing_input) AS unpriced_input_tokens,
    sum(arraySum((count, is_output) -> if(is_output, count, 0), missing, {{output_mask}}) - was_missing_output)
        AS unpriced_output_tokens,
    sumIf(asked - recorded, is_estimated) AS estimated_pico_usd,
    sumIf(was_unpriced_count, is_estimated) AS estimated_requests
FROM
(
    SELECT
        *,
        {class_rates:Array(Array(Int128))}[class_number] AS rates,
        arrayMap((count, rate) -> if(rate < 0 AND NOT is_by_units, count, 0), sums, rates) AS missing,
        arraySum(arrayMap((count, rate) -> if(rate < 0, toInt128(0), count * rate), sums, rates))
            + {class_fees:Array(Int128)}[class_number] * request_count AS asked,
        toInt128(cost_sum * toDecimal128(1000000000000, 0)) AS recorded
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
            period_start,
            class_number,
            is_estimated,
            is_by_units,
            toInt64(count()) AS request_count,
            sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum,
            toInt64(countIf(was_unpriced)) AS was_unpriced_count,
            toInt64(countIf(bitAnd(used_kinds, kinds_lacking) != 0)) - toInt64(countIf(was_partly)) AS partly_count,
            sum(multiIf(
                was_unpriced, arraySum((count, is_input) -> if(is_input, count, 0), tokens, {{input_mask}}),
                was_partly, arraySum(
                    (count, leaf, is_input) -> if(is_input AND has(unpriced_leaves, leaf), count, 0),
                    tokens, {leaves:Array(String)}, {{input_mask}}
                ),
                toInt64(0)
            )) AS was_missing_input,
            sum(multiIf(
                was_unpriced, arraySum((count, is_output) -> if(is_output, count, 0), tokens, {{output_mask}}),
                was_partly, arraySum(
                    (count, leaf, is_output) -> if(is_output AND has(unpriced_leaves, leaf), count, 0),
                    tokens, {leaves:Array(String)}, {{output_mask}}
                ),
                toInt64(0)
            )) AS was_missing_output,
            sumForEach(tokens) AS sums
        FROM
        (
            SELECT
                *,
                bitAnd(used_kinds, bitNot(kinds_without)) AS priced_kinds,
                bitAnd(priced_kinds, {{unit_bits}}) != 0 AND bitAnd(priced_kinds, {{token_bits}}) = 0 AS is_by_units,
                multiIf(
                    is_by_units, bitAnd(kinds_without, {{unit_bits}}),
                    bitAnd(priced_kinds, {{unit_bits}}) = 0
                    AND (has_fee OR bitAnd(priced_kinds, {{token_bits}}) != 0), bitAnd(kinds_without, {{token_bits}}),
                    kinds_without
                ) AS kinds_lacking
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
                    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)}))
                        AS period_start,
                    unpriced_leaves,
                    price_state = 'unpriced' AS was_unpriced,
                    price_state = 'partly_unpriced' AS was_partly,
                    count_method = 'estimate' AS is_estimated,
                    cost_usd,
                    {{leaf_counts}} AS tokens,
                    {{leaf_bits}} AS used_kinds,
                    {{price_class}}
                FROM requests
                WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
                    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
                    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
                    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
                    AND outcome != 'rejected'
                    AND price_state != 'failed'
                    AND cache NOT IN ('hit', 'semantic_hit')
                    AND (
                        isNotNull({{any_unit}})
                        OR (
                            isNotNull({{any_input}})
                            AND (operation IN ('embeddings', 'rerank', 'score') OR isNotNull({{any_output}}))
                        )
                    )
            ) AS used
            INNER JOIN
            (
                SELECT
                    class.1 AS class_tenant,
                    class.2 AS class_model,
                    class.3 AS class_provider,
                    class.4 AS class_region,
                    class.5 AS class_service_tier,
                    class.6 AS class_is_engine,
                    class.7 AS tier_number,
                    class.8 AS segment,
                    class.9 AS class_number,
                    toUInt64(arraySum(
                        (rate, place) -> if(rate < 0, bitShiftLeft(toUInt64(1), place - 1), 0),
                        class.10,
                        arrayEnumerate(class.10)
                    )) AS kinds_without,
                    class.11 > 0 AS has_fee
                FROM
                (
                    SELECT arrayJoin(arrayZip(
                        {class_tenants:Array(String)},
                        {class_models:Array(String)},
                        {class_providers:Array(String)},
                        {class_regions:Array(String)},
                        {class_service_tiers:Array(String)},
                        {class_engines:Array(UInt8)},
                        {class_tiers:Array(UInt64)},
                        {class_segments:Array(UInt64)},
                        arrayEnumerate({class_tenants:Array(String)}),
                        {class_rates:Array(Array(Int128))},
                        {class_fees:Array(Int128)}
                    )) AS class
                )
            ) AS classes USING (
                class_tenant, class_model, class_provider, class_region, class_service_tier, class_is_engine,
                tier_number, segment
            )
            WHERE bitAnd(used_kinds, kinds_without) = 0 OR has_fee OR bitAnd(used_kinds, bitNot(kinds_without)) != 0
        )
        GROUP BY
            tenant, team, project, key_id, model, provider, price_version, period_start, class_number, is_estimated,
            is_by_units
    )
)
GROUP BY tenant, team, project, key_id, model, provider, price_version, period_start
ORDER BY tenant, team, project, key_id, model, provider, price_version, period_start
