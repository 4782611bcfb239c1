-- The devices and engine hosts that had an engine in a finished hour before {start} (Unix s).
SELECT DISTINCT arrayJoin([toString(device), toString(replica)]) AS name
FROM gpu_hours
WHERE bucket < toDateTime(intDiv({start:UInt32}, 3600) * 3600, 'UTC')
    AND engine != ''
