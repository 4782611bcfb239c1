-- Requests, tokens and cost from rollups, by tenant, team, project and model ({by}) and by period: {starts} are the
-- periods' starts (Unix s), ascending, on the rollup's time unit. Money in pico-USD. The whole days from {first_day} to
-- {end_day} (Unix s; none if equal) are read from {days}, requests_day or tenant_model_day, and must be in one period
-- if {rollup} is finer; the rest is read from {rollup}. Requests without cost are counted by reason (migration 0030).
-- The usage of mixed_count requests without a price is not separable in rollups.
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    toInt64(roundDown(at, {starts:Array(UInt32)})) AS period_start,
    sum(requests) AS request_count,
    sumIf(requests, outcome = 'rejected') AS rejected_count,
    sum(input_tokens) AS input_sum,
    sum(cached_input_tokens) AS cached_input_sum,
    sum(output_tokens) AS output_sum,
    reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum,
    reinterpret(sum(charged_usd), 'Int128') AS charged_pico_sum,
    sum(no_price_requests) AS unpriced_count,
    sum(unpriced_input_tokens) AS unpriced_input_sum,
    sum(unpriced_output_tokens) AS unpriced_output_sum,
    sum(untold_requests) AS mixed_count,
    sum(usage_unknown_requests) AS unknown_usage_count,
    sum(gpu_ns) AS gpu_sum,
    sum(failed_requests) AS failed_count,
    sum(partly_unpriced_requests) AS partly_unpriced_count,
    sum(estimated_requests) AS estimated_count,
    reinterpret(sum(estimated_usd), 'Int128') AS estimated_pico_sum
FROM
(
    SELECT
        tenant, team, project, model, outcome, toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, requests, input_tokens,
        cached_input_tokens, output_tokens, cost_usd, charged_usd, no_price_requests, unpriced_input_tokens,
        unpriced_output_tokens, untold_requests, usage_unknown_requests, gpu_ns, failed_requests,
        partly_unpriced_requests, estimated_requests, estimated_usd
    FROM {days:Identifier}
    WHERE {{whole_days}}
        AND {{of_whom}}
    UNION ALL
    SELECT
        tenant, team, project, model, outcome, toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, requests, input_tokens,
        cached_input_tokens, output_tokens, cost_usd, charged_usd, no_price_requests, unpriced_input_tokens,
        unpriced_output_tokens, untold_requests, usage_unknown_requests, gpu_ns, failed_requests,
        partly_unpriced_requests, estimated_requests, estimated_usd
    FROM {rollup:Identifier}
    WHERE {{beside_whole_days}}
        AND {{of_whom}}
)
GROUP BY tenant_label, team_label, project_label, model_label, period_start
LIMIT {line_limit:UInt32}
