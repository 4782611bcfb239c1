-- Tenants' time on each engine in finished hours: useful time, and time wasted on requests whose client had
-- disconnected.
SELECT
    engine AS engine_label,
    tenant AS tenant_label,
    toInt64(toUnixTimestamp(bucket)) AS hour_start,
    sum(useful_ns) AS useful_sum,
    sum(wasted_ns) AS wasted_sum
FROM gpu_tenant_hours
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
GROUP BY engine_label, tenant_label, hour_start
