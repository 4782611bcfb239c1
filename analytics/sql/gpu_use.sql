-- GPU time charged to requests over time by tenant and team, counted at each request's start. One row per tenant and
-- team with the sums of its {step_count} steps of {step} seconds from {first_step} on, which is faster than a group per
-- step. {rollup} is requests_minute, requests_hour or requests_day.
SELECT
    tenant AS tenant_label,
    team AS team_label,
    sumResample(0, {step_count:UInt32}, 1)(
        source.gpu_ns, intDiv(toUnixTimestamp(toDateTime(bucket, 'UTC')) - {first_step:UInt32}, {step:UInt32})
    ) AS gpu_sums,
    sum(source.requests) AS request_count
FROM {rollup:Identifier} AS source
WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND source.gpu_ns > 0
GROUP BY tenant_label, team_label
