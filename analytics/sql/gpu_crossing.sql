-- What the engine steps say of time that gpu_lines.sql leaves out: they begin in one step of time and end in another,
-- or reach out of the range; one per engine and bound at most. Columns as in gpu_steps.sql.
SELECT
    engine,
    model,
    replica,
    toString(kind) AS kind_label,
    toString(gap_cause) AS cause_label,
    arrayMap(device -> toString(device), devices) AS device_labels,
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    busy_ns,
    gap_ns,
    sequence,
    arraySum(arrayMap(
        (ns, gone) -> if(gone, ns, 0), gpu_ns, arrayResize(aborted, length(gpu_ns), false)
    )) AS wasted_sum,
    arraySum(arrayMap(
        (ns, gone, again, planned) -> if(gone OR planned = 0, 0, intDiv(ns * least(again, planned), planned)),
        gpu_ns,
        arrayResize(aborted, length(gpu_ns), false),
        arrayResize(recompute, length(gpu_ns), 0),
        arrayResize(scheduled, length(gpu_ns), 0)
    )) AS recompute_sum,
    arraySum(gpu_ns) AS charged_sum
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
