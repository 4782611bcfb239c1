-- When each token of one request came: its start, its time to the first token and the gaps after that (10 us units).
SELECT
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    ttft_ns,
    wait_ns,
    gaps,
    model AS model_label,
    tenant AS tenant_label
FROM requests
WHERE request_id = {request_id:UUID}
    AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
LIMIT 1
