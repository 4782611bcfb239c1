-- What the requests of one run (x-tollkeeper-run-id) came to: all of them, and those that were answered completely.
-- A run is a few hours at most and no rollup knows it, so this reads the requests; start and end
-- are Unix seconds.
SELECT
    count() AS request_count,
    countIf(outcome = 'ok') AS ok_count,
    countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count,
    sum(
        ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0)
    ) AS input_sum,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_input_sum,
    sum(
        ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0) + ifNull(tokens_output_image, 0)
    ) AS output_sum,
    sumIf(
        ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0) + ifNull(tokens_output_image, 0),
        outcome = 'ok'
    ) AS ok_output_sum,
    sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND run_id = {run_id:String}
