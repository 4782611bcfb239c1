-- Time to first token of a tenant's requests to one model at one target: in the day before a time, and in the five
-- minutes before and after it, without the request itself. Nanoseconds; 0 without requests.
SELECT
    countIf(started_at < toDateTime64({at:UInt32}, 9, 'UTC')) AS day_count,
    toUInt64(ifNotFinite(quantileIf(0.5)(ttft_ns, started_at < toDateTime64({at:UInt32}, 9, 'UTC')), 0)) AS day_p50,
    toUInt64(ifNotFinite(quantileIf(0.95)(ttft_ns, started_at < toDateTime64({at:UInt32}, 9, 'UTC')), 0)) AS day_p95,
    countIf(started_at >= toDateTime64({near_start:UInt32}, 9, 'UTC')) AS near_count,
    toUInt64(ifNotFinite(quantileIf(0.5)(ttft_ns, started_at >= toDateTime64({near_start:UInt32}, 9, 'UTC')), 0)) AS near_p50
FROM requests
WHERE tenant = {tenant:String}
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND model = {model:String}
    AND replica = {replica:String}
    AND ttft_ns IS NOT NULL
    AND request_id != {request_id:UUID}
