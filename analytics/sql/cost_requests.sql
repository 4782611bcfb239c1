-- Requests, tokens and cost from single requests, by labels ({by}) and by period: {starts} are the periods' starts
-- (Unix s), ascending. Money in pico-USD. {only_unpriced}: only requests with usage without an amount. `price_state`
-- (0030) is the reason why.
SELECT
    {{cost_labels}},
    count() AS request_count,
    countIf(outcome = 'rejected') AS rejected_count,
    sum({{input_sum}}) AS input_sum,
    sum({{cached_sum}}) AS cached_input_sum,
    sum({{output_sum}}) AS output_sum,
    reinterpret(sum(ifNull(cost_usd, toDecimal64(0, 12))), 'Int128') AS cost_pico_sum,
    reinterpret(sum(ifNull(charged_usd, toDecimal64(0, 12))), 'Int128') AS charged_pico_sum,
    countIf(price_state = 'unpriced') AS unpriced_count,
    sum(unpriced_input_tokens) AS unpriced_input_sum,
    sum(unpriced_output_tokens) AS unpriced_output_sum,
    countIf(price_state = 'unknown_usage') AS unknown_usage_count,
    sum(
        ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0)
    ) AS gpu_sum,
    countIf(price_state = 'failed') AS failed_count,
    countIf(price_state = 'partly_unpriced') AS partly_unpriced_count,
    countIf(count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')) AS estimated_count,
    reinterpret(
        sumIf(
            ifNull(cost_usd, toDecimal64(0, 12)),
            count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')
        ),
        'Int128'
    ) AS estimated_pico_sum
FROM requests
WHERE {{requests_asked_for}}
    AND ({only_unpriced:Bool} = false OR price_state IN ('failed', 'unknown_usage', 'unpriced', 'partly_unpriced'))
GROUP BY
    {{cost_label_names}}
LIMIT {line_limit:UInt32}
