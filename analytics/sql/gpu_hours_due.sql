-- Hours in which an engine reported steps (or ten minutes before) and that are not yet finished.
SELECT
    hour_start,
    engine AS engine_label
FROM
(
    SELECT
        engine,
        arrayJoin([
            toInt64(toUnixTimestamp(toStartOfHour(bucket))),
            toInt64(toUnixTimestamp(toStartOfHour(bucket + INTERVAL 10 MINUTE)))
        ]) AS hour_start
    FROM engine_minutes
    WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
        AND bucket < toDateTime({end:UInt32}, 'UTC')
)
WHERE hour_start >= {start:UInt32}
    AND hour_start < {end:UInt32}
    AND (hour_start, engine) NOT IN
    (
        SELECT toInt64(toUnixTimestamp(bucket)), engine
        FROM gpu_hours
        WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
            AND bucket < toDateTime({end:UInt32}, 'UTC')
    )
GROUP BY hour_start, engine_label
ORDER BY hour_start, engine_label
