-- Each tenant's spending in the first {seconds} (whole hours) of each day (UTC), to compare with the same part of other
-- days. One row per tenant, days in parallel arrays.
SELECT
    tenant AS tenant_label,
    groupArray(day) AS days,
    groupArray(day_cost) AS cost_sums,
    groupArray(day_requests) AS request_counts
FROM
(
    SELECT
        tenant,
        toDate(bucket, 'UTC') AS day,
        sum(cost_usd) AS day_cost,
        toUInt64(sum(requests)) AS day_requests
    FROM requests_hour
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND toUnixTimestamp(toDateTime(bucket, 'UTC')) % 86400 < {seconds:UInt32}
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    GROUP BY tenant, day
)
GROUP BY tenant_label
