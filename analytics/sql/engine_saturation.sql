-- How full each engine was in each minute: blocks of its KV cache in use at the most (0 to 1), and requests that waited
-- in it, the mean over its steps. Minutes without a step have no row.
SELECT
    engine,
    any(model) AS model_name,
    any(replica) AS replica_name,
    bucket,
    max(source.kv_blocks_used_max) / greatest(max(source.kv_blocks_total_max), 1) AS kv_share,
    sum(source.waiting_sum) / greatest(sum(source.steps), 1) AS waiting_mean
FROM engine_minutes AS source
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
GROUP BY engine, bucket
ORDER BY engine, bucket
