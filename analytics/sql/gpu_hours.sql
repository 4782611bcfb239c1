-- The ledger's lines of each engine's finished hours by GPU. A row without an engine only marks its hour as finished.
SELECT
    toInt64(toUnixTimestamp(bucket)) AS hour_start,
    device AS device_label,
    engine AS engine_label,
    model AS model_label,
    replica AS replica_label,
    device_model AS device_model_label,
    is_gpu AS on_gpu,
    sum(wall_ns) AS wall_sum,
    sum(attributed_ns) AS attributed_sum,
    sum(recompute_ns) AS recompute_sum,
    sum(wasted_ns) AS wasted_sum,
    sum(unattributed_ns) AS unattributed_sum,
    sum(host_gap_ns) AS host_gap_sum,
    sum(idle_ns) AS idle_sum,
    sum(load_ns) AS load_sum,
    sum(warmup_ns) AS warmup_sum,
    sum(sleep_ns) AS sleep_sum,
    sum(dead_ns) AS dead_sum,
    sum(no_engine_ns) AS no_engine_sum,
    max(first_ns) AS first_moment_ns
FROM gpu_hours
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
    AND engine != ''
GROUP BY hour_start, device_label, engine_label, model_label, replica_label, device_model_label, on_gpu
ORDER BY device_label, engine_label, hour_start
