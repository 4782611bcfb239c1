-- The last step of every engine that ran in a range, and the times of its load or end.
SELECT
    replica AS replica_label,
    model AS model_label,
    max(started_at) AS last_step_at,
    maxIf(started_at, kind = 'load') AS loaded_at,
    maxIf(started_at, kind IN ('dead', 'lost')) AS ended_at
FROM engine_steps
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY replica_label, model_label
ORDER BY replica_label, model_label
LIMIT {row_limit:UInt32}
