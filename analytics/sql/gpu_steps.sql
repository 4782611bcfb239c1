-- Times of each engine step, with GPU time classified as useful, recomputed (paid by the platform) and wasted (for
-- requests whose client had disconnected), as in algorithms/gpu_time/attribution.py. Steps are stored for 72 hours.
-- Steps that begin before the range may extend into it, so the caller passes an earlier start. {engine}: only this
-- engine; empty: all.
SELECT
    {{step_times}}
FROM engine_steps
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({engine:String} = '' OR engine = {engine:String})
ORDER BY engine, started_at, sequence
LIMIT {line_limit:UInt32}
