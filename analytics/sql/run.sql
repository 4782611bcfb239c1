-- Totals of one run (x-tollkeeper-run-id): all its requests, and the completely answered ones. A run takes a few hours
-- at most and rollups lack it, so this reads the requests; start and end are Unix seconds.
SELECT
    count() AS request_count,
    countIf(outcome = 'ok') AS ok_count,
    countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count,
    sum({{input_sum}}) AS input_sum,
    sum({{cached_sum}}) AS cached_input_sum,
    sum({{output_sum}}) AS output_sum,
    sumIf(
        {{output_sum}},
        outcome = 'ok'
    ) AS ok_output_sum,
    sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND run_id = {run_id:String}
