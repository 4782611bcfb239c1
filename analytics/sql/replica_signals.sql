-- Engines' latest reports: per replica its queue, cache and busy share. An idle engine reports at growing intervals,
-- each for the whole interval, so idle time counts from {idle_start} on. An engine without a report is missing in the
-- result, which is not the same as idle.
SELECT
    model AS model_label,
    replica AS replica_label,
    toInt64(toUnixTimestamp(max(started_at))) AS newest,
    toUInt64(argMax(kind != 'step', (started_at, sequence))) AS is_idle,
    toUInt64(argMax(ifNull(waiting, 0), (started_at, sequence))) AS waiting_now,
    toUInt64(argMax(ifNull(running, 0), (started_at, sequence))) AS running_now,
    toUInt64(argMax(ifNull(kv_blocks_used, 0), (started_at, sequence))) AS blocks_used,
    toUInt64(argMax(ifNull(kv_blocks_total, 0), (started_at, sequence))) AS blocks_total,
    sumIf(busy_ns, kind = 'step') AS busy_sum
FROM engine_steps
WHERE started_at >= toDateTime({idle_start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND (kind = 'idle' OR (kind = 'step' AND started_at >= toDateTime({start:UInt32}, 'UTC')))
GROUP BY model_label, replica_label
ORDER BY model_label, replica_label
