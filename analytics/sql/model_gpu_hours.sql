-- Usage of self-hosted models by hour: tokens by kind, and GPU time by phase, of requests with measured GPU time.
SELECT
    model AS model_label,
    intDiv(toUnixTimestamp(toDateTime(started_at, 'UTC')), 3600) * 3600 AS hour_start,
    count() AS request_count,
    sum({{fresh_sum}}) AS uncached_sum,
    sum({{cached_sum}}) AS cached_sum,
    sum({{output_sum}}) AS output_sum,
    sum(ifNull(gpu_prefill_ns, 0)) AS prefill_sum,
    sum(ifNull(gpu_decode_ns, 0)) AS decode_sum
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND attribution_method != ''
GROUP BY model_label, hour_start
ORDER BY model_label, hour_start
