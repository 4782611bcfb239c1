-- Start time (Unix ns, rounded down to a microsecond) of the oldest of the {row_limit} newest requests, and their
-- number. Reads the requests of 72 hours sorted by time, from a window's end.
SELECT intDiv(min(toUnixTimestamp64Nano(began)), 1000) * 1000 AS since_ns, count() AS request_count
FROM
(
    SELECT started_at AS began
    FROM requests_recent
    WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    ORDER BY started_at DESC
    LIMIT {row_limit:UInt32}
)
