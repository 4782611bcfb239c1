-- Numbered records that are missing in the store: engine steps and GPU samples.
SELECT
    'steps' AS what,
    engine AS source_name,
    max(minutes.last_sequence) - min(minutes.first_sequence) + 1 AS numbered,
    sum(minutes.steps) AS stored
FROM engine_minutes AS minutes
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
GROUP BY engine
HAVING stored < numbered
UNION ALL
SELECT
    'gpu_samples' AS what,
    host AS source_name,
    max(sequence) - min(sequence) + 1 AS numbered,
    uniqExact(sequence) AS stored
FROM gpu_samples
WHERE at >= toDateTime({start:UInt32}, 'UTC')
    AND at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY host
HAVING stored < numbered
