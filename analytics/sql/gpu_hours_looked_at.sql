-- Hours that were finished, whether or not an engine reported anything: the rows without an engine.
SELECT DISTINCT toInt64(toUnixTimestamp(bucket)) AS hour_start
FROM gpu_hours
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
    AND engine = ''
ORDER BY hour_start
