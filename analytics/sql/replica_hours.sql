-- Busy share and maximum queue length of each replica by hour, to find idle replicas.
SELECT
    model AS model_label,
    replica AS replica_label,
    toInt64(toUnixTimestamp(toStartOfHour(bucket))) AS hour_start,
    sumIf(busy_ns, kind = 'step') AS busy_sum,
    max(waiting_max) AS waiting_most,
    round(sumIf(device_busy_ns, kind = 'step') / greatest(sumIf(busy_ns, kind = 'step'), 1)) AS ranks
FROM engine_minutes
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
GROUP BY model_label, replica_label, hour_start
ORDER BY model_label, hour_start, replica_label
