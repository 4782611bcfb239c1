-- Times of the engine steps that gpu_lines.sql excludes: those that cross a bound of a time step or of the range; at
-- most one per engine and bound. Columns as in gpu_steps.sql.
SELECT
    {{step_times}}
FROM engine_steps
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) < {end_ns:Int64}
    AND toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) > {start_ns:Int64}
    AND NOT (
        toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) >= {start_ns:Int64}
        AND toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) <= {end_ns:Int64}
        AND intDiv(toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) - {origin_ns:Int64}, {step_ns:Int64})
            = intDiv(
                toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) - 1 - {origin_ns:Int64}, {step_ns:Int64}
            )
    )
ORDER BY engine, started_at, sequence
