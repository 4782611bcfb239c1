-- Mean length of each model's prompts in a range and of their uncached part, as the expectation for a new request.
SELECT
    model AS model_label,
    count() AS request_count,
    avg(ifNull(tokens_input_text, 0)) AS mean_uncached,
    avg(ifNull(tokens_cache_read_text, 0)) AS mean_cached
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND attribution_method != ''
GROUP BY model_label
