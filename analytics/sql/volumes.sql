-- Requests, tokens and cost by tenant and model, and in total (is_total = 1), in one query, so that the parts sum to
-- the total even while rows arrive. The whole days from {first_day} to {end_day} (Unix s; none if equal) are read from
-- {days}, requests_day or tenant_model_day; the rest of {start} to {end} from {rollup}, whose time unit they are on.
-- The platform's own requests (`_platform`: copies to a rollout's candidate) are in every sum, as they cost money. In
-- the total row copy_count and copy_error_count count the admitted and the failed ones, and samples of times exclude
-- them, as no client received their answers. For tenant `_platform` they count as any tenant's.
SELECT
    grouping(tenant) AS is_total,
    tenant,
    model,
    sum(request_part) AS request_count,
    sum(error_part) AS error_count,
    sum(rejected_part) AS rejected_count,
    sum(cancelled_part) AS cancelled_count,
    sum(streamed_part) AS streamed_count,
    sum(unpriced_part) AS unpriced_count,
    sum(unknown_usage_part) AS unknown_usage_count,
    sum(failed_part) AS failed_count,
    sum(input_part) AS input_sum,
    sum(cached_input_part) AS cached_input_sum,
    sum(output_part) AS output_sum,
    sum(cost_part) AS cost_sum,
    sum(copy_part) * grouping(tenant) AS copy_count,
    sum(copy_error_part) * grouping(tenant) AS copy_error_count,
    sum(seen_ttft_part) AS ttft_samples,
    sum(seen_gap_part) AS gap_samples
FROM
(
    SELECT
        tenant,
        model,
        sum(requests) AS request_part,
        sumIf(requests, outcome = 'error') AS error_part,
        sumIf(requests, outcome = 'rejected') AS rejected_part,
        sumIf(requests, outcome = 'cancelled') AS cancelled_part,
        sum(streamed_requests) AS streamed_part,
        sum(no_price_requests) AS unpriced_part,
        sum(usage_unknown_requests) AS unknown_usage_part,
        sum(failed_requests) AS failed_part,
        sum(input_tokens) AS input_part,
        sum(cached_input_tokens) AS cached_input_part,
        sum(output_tokens) AS output_part,
        sum(cost_usd) AS cost_part,
        tenant = '_platform' AND {tenant:Nullable(String)} IS NULL AS is_copied,
        if(is_copied, sumIf(requests, outcome != 'rejected'), 0) AS copy_part,
        if(is_copied, error_part, 0) AS copy_error_part,
        if(is_copied, 0, sum(ttft_count)) AS seen_ttft_part,
        if(is_copied, 0, sum(gap_count)) AS seen_gap_part
    FROM
    (
        SELECT
            tenant, model, outcome, requests, streamed_requests, no_price_requests, usage_unknown_requests,
            failed_requests, input_tokens, cached_input_tokens, output_tokens, cost_usd, ttft_count, gap_count
        FROM {days:Identifier}
        WHERE {{whole_days}}
            AND {{of_whom}}
        UNION ALL
        SELECT
            tenant, model, outcome, requests, streamed_requests, no_price_requests, usage_unknown_requests,
            failed_requests, input_tokens, cached_input_tokens, output_tokens, cost_usd, ttft_count, gap_count
        FROM {rollup:Identifier}
        WHERE {{beside_whole_days}}
            AND {{of_whom}}
    )
    GROUP BY tenant, model
)
GROUP BY GROUPING SETS ((), (tenant, model))
ORDER BY is_total DESC, cost_sum DESC, request_count DESC, tenant, model
LIMIT {row_limit:UInt32}
