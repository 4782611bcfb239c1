-- The tags that requests carry from {start} until {end} (Unix seconds), by name.
SELECT arrayJoin(mapKeys(tags)) AS name
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY name
ORDER BY name
LIMIT {line_limit:UInt32}
