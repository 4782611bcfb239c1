-- What each engine step says of time, with its GPU time sorted into useful, recomputed (the platform's) and wasted (of
-- requests whose client had left), as algorithms/gpu_time/attribution.py sorts it. Steps are kept for 72 hours.
-- Rows that begin before the range may reach into it: the caller asks from a little earlier. Of one {engine}, or all.
SELECT
    {{step_times}}
FROM engine_steps
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({engine:String} = '' OR engine = {engine:String})
ORDER BY engine, started_at, sequence
LIMIT {line_limit:UInt32}
