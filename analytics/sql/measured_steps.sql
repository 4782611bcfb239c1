-- Engine steps of a model in a range, newest first: busy time, the host's gap before it, and its rows.
SELECT
    model AS model_label,
    busy_ns,
    gap_ns,
    gap_cause,
    ranks,
    coalesce(kv_blocks_total, 0) AS blocks_total,
    scheduled,
    context,
    phases
FROM engine_steps
WHERE kind = 'step'
    AND busy_ns > 0
    AND started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
ORDER BY started_at DESC
LIMIT {row_limit:UInt32}
