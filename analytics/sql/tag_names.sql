-- Names of the tags of requests from {start} to {end} (Unix s).
SELECT arrayJoin(mapKeys(tags)) AS name
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY name
ORDER BY name
LIMIT {line_limit:UInt32}
