-- The requests that a model answered in a time, as a plan replays them: when, for whom, how long, how much was cached.
-- Copies to a rollout's candidate (`_platform`), whose answers nobody saw, are in it only where they are asked for.
SELECT
    toUnixTimestamp64Nano(started_at) AS at_ns,
    tenant,
    conversation_id,
    coalesce(tokens_input_text, 0) + coalesce(tokens_input_audio, 0) + coalesce(tokens_input_image, 0)
        + coalesce(tokens_cache_read_text, 0) + coalesce(tokens_cache_read_audio, 0)
        + coalesce(tokens_cache_write_5m, 0) + coalesce(tokens_cache_write_1h, 0) AS input_sum,
    coalesce(tokens_cache_read_text, 0) + coalesce(tokens_cache_read_audio, 0) AS cached_sum,
    coalesce(tokens_output_text, 0) + coalesce(tokens_output_reasoning, 0) + coalesce(tokens_output_audio, 0)
        + coalesce(tokens_output_image, 0) AS output_sum
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND input_sum > 0
    AND output_sum > 0
ORDER BY started_at, request_id
LIMIT {row_limit:UInt32}
