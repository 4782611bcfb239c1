-- What each tenant spent on each day (UTC), one row for a tenant, its days in arrays that run parallel. NULL money is not
-- in the sums; unpriced_count says of how many requests, without those that failed and cost nothing.
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
        sum(cost_usd) AS day_cost,
        sum(requests) AS day_requests,
        sum(no_price_requests) + sum(usage_unknown_requests) AS day_unpriced
    FROM tenant_cost_day
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    GROUP BY tenant, day
)
GROUP BY tenant_label
