-- The devices and engine hosts that had an engine in an hour that was finished before {start} (Unix seconds).
SELECT DISTINCT arrayJoin([toString(device), toString(replica)]) AS name
FROM gpu_hours
WHERE bucket < toDateTime(intDiv({start:UInt32}, 3600) * 3600, 'UTC')
    AND engine != ''
