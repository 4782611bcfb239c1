-- A request that is about to be judged: whose it is, where the asker may know of it. Its id says about when it began.
SELECT tenant, team, started_at
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND request_id = {request_id:UUID}
LIMIT 1
