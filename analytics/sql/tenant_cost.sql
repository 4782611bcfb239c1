-- Each tenant's spending by day (UTC), a row per tenant and day, unordered: a month of a thousand tenants has thirty
-- thousand rows. NULL money is not in the sums; unpriced_count counts such requests, without those that failed and cost
-- nothing.
SELECT
    tenant,
    bucket AS day,
    sum(requests) AS request_count,
    sum(cost_usd) AS cost_sum,
    sum(charged_usd) AS charged_sum,
    sum(no_price_requests) + sum(usage_unknown_requests) AS unpriced_count
FROM tenant_cost_day
WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
GROUP BY tenant, day
