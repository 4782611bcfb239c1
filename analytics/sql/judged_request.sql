-- A request to be judged: its tenant and start, if it is within the caller's reach. Its id has its approximate start.
SELECT tenant, team, started_at
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND request_id = {request_id:UUID}
LIMIT 1
