-- Tries that failed in a way that a provider may bill, before another try made the answer: tokens as far as they are
-- known, else those of the request, whose prompt is the same.
SELECT
    toString(toDate(tries.started_at, 'UTC')) AS day_label,
    tries.replica AS target_label,
    tries.model AS model_label,
    answered.model_version AS version_label,
    count() AS try_count,
    [
        sum(toUInt64(ifNull(coalesce(tries.tokens_input_text, answered.tokens_input_text), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_input_audio, answered.tokens_input_audio), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_input_image, answered.tokens_input_image), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_cache_read_text, answered.tokens_cache_read_text), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_cache_read_audio, answered.tokens_cache_read_audio), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_cache_write_5m, answered.tokens_cache_write_5m), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_cache_write_1h, answered.tokens_cache_write_1h), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_output_text, answered.tokens_output_text), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_output_reasoning, answered.tokens_output_reasoning), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_output_audio, answered.tokens_output_audio), 0))),
        sum(toUInt64(ifNull(coalesce(tries.tokens_output_image, answered.tokens_output_image), 0)))
    ] AS leaf_sums
FROM
(
    SELECT *
    FROM attempts
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND provider IN {providers:Array(String)}
        AND outcome != 'ok'
        AND cost_basis != 'free'
        AND number > 0
) AS tries
INNER JOIN
(
    SELECT *
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32} - 86400, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND requests.attempts > 1
) AS answered USING (request_id)
WHERE tries.number < answered.attempts
GROUP BY day_label, target_label, model_label, version_label
