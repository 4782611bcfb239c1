-- Load of each engine by minute: maximum share of KV cache blocks in use (0 to 1), and mean queue length over its
-- steps. Minutes without a step have no row.
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
