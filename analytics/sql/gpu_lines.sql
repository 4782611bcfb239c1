-- The GPU ledger's lines by engine, from records within one time step of {step_ns} from {origin_ns} on and within
-- {start_ns} to {end_ns} (Unix ns); gpu_crossing.sql has the other records. GPU time is classified as in gpu_steps.sql.
-- {start} and {end} are Unix seconds, slightly wider than the range.
SELECT
    engine,
    place,
    sumIf(gap, cause_label = 'host') AS host_gap_sum,
    sumIf(gap, cause_label = 'idle') + sumIf(busy, kind_label = 'idle') AS idle_sum,
    sumIf(gap, cause_label = 'lifecycle') + sumIf(busy, kind_label = 'load') AS load_sum,
    sumIf(busy, kind_label = 'warmup') AS warmup_sum,
    sumIf(busy, kind_label = 'sleep') AS sleep_sum,
    sumIf(busy, kind_label = 'dead') AS dead_sum,
    sumIf(charged - wasted - again, kind_label = 'step') AS attributed_sum,
    sumIf(again, kind_label = 'step') AS recompute_sum,
    sumIf(wasted, kind_label = 'step') AS wasted_sum,
    sumIf(busy - charged, kind_label = 'step') AS unattributed_sum
FROM
(
    SELECT
        engine,
        toString(kind) AS kind_label,
        toString(gap_cause) AS cause_label,
        toInt64(busy_ns) AS busy,
        toInt64(gap_ns) AS gap,
        intDiv(toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) - {origin_ns:Int64}, {step_ns:Int64}) AS place,
        toInt64(arraySum(gpu_ns)) AS charged,
        if(
            has(aborted, true),
            toInt64(arraySum(arrayMap(
                (ns, gone) -> if(gone, ns, 0), gpu_ns, arrayResize(aborted, length(gpu_ns), false)
            ))),
            0
        ) AS wasted,
        if(
            arraySum(recompute) > 0,
            toInt64(arraySum(arrayMap(
                (ns, gone, again, planned) -> if(gone OR planned = 0, 0, intDiv(ns * least(again, planned), planned)),
                gpu_ns,
                arrayResize(aborted, length(gpu_ns), false),
                arrayResize(recompute, length(gpu_ns), 0),
                arrayResize(scheduled, length(gpu_ns), 0)
            ))),
            0
        ) AS again
    FROM engine_steps
    WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) >= {start_ns:Int64}
        AND toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) <= {end_ns:Int64}
        AND intDiv(toUnixTimestamp64Nano(started_at) - toInt64(gap_ns) - {origin_ns:Int64}, {step_ns:Int64})
            = intDiv(
                toUnixTimestamp64Nano(started_at) + toInt64(busy_ns) - 1 - {origin_ns:Int64}, {step_ns:Int64}
            )
)
GROUP BY engine, place
