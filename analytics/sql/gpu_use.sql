-- GPU time that requests were charged with, over time by tenant and team; a request's counts where it began. One row a
-- tenant and team, with its steps in no order: as a row for each they take longer to read than to find.
-- {rollup} is requests_minute, requests_hour or requests_day.
SELECT
    tenant_label,
    team_label,
    groupArray(step_start) AS steps,
    groupArray(gpu_sum) AS gpu_sums,
    sum(request_count) AS request_count
FROM
(
    SELECT
        intDiv(toUnixTimestamp(toDateTime(bucket, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        tenant AS tenant_label,
        team AS team_label,
        sum(source.gpu_ns) AS gpu_sum,
        sum(source.requests) AS request_count
    FROM {rollup:Identifier} AS source
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
        AND source.gpu_ns > 0
    GROUP BY step_start, tenant_label, team_label
)
GROUP BY tenant_label, team_label
