-- Each tenant's spending by day (UTC): one row per tenant, days in parallel arrays. NULL money is not in the sums;
-- unpriced_count counts such requests, without those that failed and cost nothing.
SELECT
    tenant AS tenant_label,
    groupArray(day) AS days,
    groupArray(day_cost) AS cost_sums,
    groupArray(day_requests) AS request_counts,
    sum(day_unpriced) AS unpriced_count
FROM
(
    SELECT
        tenant,
        bucket AS day,
        sum(cost) AS day_cost,
        toUInt64(sum(request_count)) AS day_requests,
        toUInt64(greatest(sum(unpriced), 0)) AS day_unpriced
    FROM
    (
        SELECT
            tenant,
            bucket,
            cost_usd AS cost,
            toInt64(requests) AS request_count,
            toInt64(no_price_requests + usage_unknown_requests) AS unpriced
        FROM tenant_cost_day
        WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
            AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        UNION ALL
        SELECT tenant, toDate(used_at, 'UTC'), cost_usd, 0, no_price_requests
        FROM book_entries FINAL -- corrections, on the day of the usage
        WHERE used_at >= toDateTime({start:UInt32}, 'UTC')
            AND used_at < toDateTime({end:UInt32}, 'UTC')
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    )
    GROUP BY tenant, day
)
GROUP BY tenant_label
