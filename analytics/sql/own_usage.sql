-- Usage of a tenant's (and team's) keys {keys}: a row per model and day (UTC), money in pico-USD. Requests without a
-- price or without reported usage are counted and not in the sums.
SELECT
    model AS model_label,
    toInt64(toUnixTimestamp(toStartOfDay(started_at, 'UTC'))) AS day_start,
    count() AS request_count,
    countIf(outcome IN ('error', 'rejected')) AS refused_count,
    sum({{input_sum}}) AS input_sum,
    sum({{output_sum}}) AS output_sum,
    reinterpret(sum(ifNull(cost_usd, toDecimal64(0, 12))), 'Int128') AS cost_pico_sum,
    countIf(price_state IN ('unpriced', 'partly_unpriced', 'unknown_usage')) AS unpriced_count
FROM requests
WHERE tenant = {tenant:String}
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND has({keys:Array(String)}, key_id)
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY model_label, day_start
ORDER BY day_start, model_label
LIMIT 20000
