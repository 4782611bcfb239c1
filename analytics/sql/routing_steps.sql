-- How much of prompts was found in caches, by pool and over time. Kept answers reached no target.
SELECT
    intDiv(toUnixTimestamp(started_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    pool AS pool_label,
    count() AS request_count,
    sum(
          ifNull(tokens_input_text, 0)
        + ifNull(tokens_input_audio, 0)
        + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0)
        + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0)
        + ifNull(tokens_cache_write_1h, 0)
    ) AS input_sum,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_sum
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome != 'rejected'
    AND cache NOT IN ('hit', 'semantic_hit')
GROUP BY step_start, pool_label
ORDER BY step_start, pool_label
