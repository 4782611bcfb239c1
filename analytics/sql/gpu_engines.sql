-- The engines that reported steps in a range: attributes, first and last step, and number of steps. {start} and {end}
-- are Unix seconds, slightly wider than the range {start_ns} to {end_ns}.
SELECT
    engine,
    any(model) AS model_label,
    any(replica) AS replica_label,
    arrayMap(device -> toString(device), any(devices)) AS device_labels,
    min(toUnixTimestamp64Nano(started_at) - toInt64(gap_ns)) AS first_ns,
    max(toUnixTimestamp64Nano(started_at) + toInt64(busy_ns)) AS last_ns,
    count() AS step_count,
    max(sequence) - min(sequence) + 1 AS expected_count
FROM engine_steps
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) < {end_ns:Int64}
    AND toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) > {start_ns:Int64}
GROUP BY engine
ORDER BY engine
