-- The hours that were looked at once they were over, whatever engines told in them: of their rows the one that names no
-- engine.
SELECT DISTINCT toInt64(toUnixTimestamp(bucket)) AS hour_start
FROM gpu_hours
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
    AND engine = ''
ORDER BY hour_start
