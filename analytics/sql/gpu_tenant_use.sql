-- Tenants' time on each engine by minute: useful time, time recomputed after a preemption, and time wasted on requests
-- whose client had disconnected. Steps are stored for 72 hours; a step counts in the minute of its start. {engine}:
-- only this engine; empty: all.
SELECT
    engine,
    slot.1 AS tenant_label,
    intDiv(toUnixTimestamp(toDateTime(at, 'UTC')), 60) * 60 AS minute_start,
    sum(slot.2) AS charged_sum,
    sum(slot.3) AS wasted_sum,
    sum(slot.4) AS recompute_sum
FROM
(
    SELECT
        engine,
        started_at AS at,
        arrayJoin(arrayMap(
            (who, ns, gone, again, planned) -> (
                toString(who),
                ns,
                if(gone, ns, 0),
                if(gone OR planned = 0, 0, intDiv(ns * least(again, planned), planned))
            ),
            arrayResize(tenants, length(gpu_ns), ''),
            gpu_ns,
            arrayResize(aborted, length(gpu_ns), false),
            arrayResize(recompute, length(gpu_ns), 0),
            arrayResize(scheduled, length(gpu_ns), 0)
        )) AS slot
    FROM engine_steps
    WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({engine:String} = '' OR engine = {engine:String})
)
GROUP BY engine, tenant_label, minute_start
