-- Stored answers that judge {judge} has not scored, sampled by their ids: {share} of 1,000,000.
SELECT tenant, request_id, model, started_at, prompt, completion
FROM content
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND cityHash64(request_id) % 1000000 < {share:UInt32}
    AND (tenant, request_id) NOT IN
    (
        SELECT tenant, request_id
        FROM feedback
        WHERE request_started_at >= toDateTime({start:UInt32}, 'UTC')
            AND request_started_at < toDateTime64({end:UInt32}, 9, 'UTC')
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
            AND source = 'judge'
            AND author = {judge:String}
    )
ORDER BY started_at
LIMIT {row_limit:UInt32}
