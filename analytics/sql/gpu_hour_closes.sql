-- Each engine's lifetime in a range and the part that its records explain, in nanoseconds; records that cross a bound
-- count for their part inside. One row per engine.
SELECT
    engine AS engine_label,
    any(arrayMap(device -> toString(device), devices)) AS device_labels,
    least({end_ns:Int64}, max(began_ns + toInt64(busy_ns)))
        - greatest({start_ns:Int64}, min(began_ns - toInt64(gap_ns))) AS wall_sum,
    sum(if(
        kind IN ('step', 'idle', 'load', 'warmup', 'sleep', 'dead'),
        greatest(least(began_ns + toInt64(busy_ns), {end_ns:Int64}) - greatest(began_ns, {start_ns:Int64}), 0),
        0
    )) + sum(if(
        gap_cause IN ('host', 'idle', 'lifecycle'),
        greatest(least(began_ns, {end_ns:Int64}) - greatest(began_ns - toInt64(gap_ns), {start_ns:Int64}), 0),
        0
    )) AS explained_sum
FROM
(
    SELECT engine, devices, kind, gap_cause, busy_ns, gap_ns, toUnixTimestamp64Nano(started_at) AS began_ns
    FROM engine_steps
    WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
)
WHERE began_ns + toInt64(busy_ns) > {start_ns:Int64}
    AND began_ns - toInt64(gap_ns) < {end_ns:Int64}
GROUP BY engine_label
ORDER BY engine_label
