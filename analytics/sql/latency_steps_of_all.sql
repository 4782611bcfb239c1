-- The result of latency_steps.sql for all tenants. {rollup} is model_steps_hour or model_steps_day (0023), which have
-- separate rows per latency and no tenant.
SELECT
    grouping(prompt_label) AS is_over_time,
    step_start,
    prompt_label,
    measure_name,
    above,
    sum(request_part) AS request_sum
FROM
(
    SELECT
        intDiv(toUnixTimestamp(toDateTime(bucket, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        toString(prompt_class) AS prompt_label,
        toString(source.measure_name) AS measure_name,
        above,
        sum(source.requests) AS request_part
    FROM {rollup:Identifier} AS source
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    GROUP BY step_start, prompt_label, measure_name, above
)
GROUP BY GROUPING SETS ((step_start, measure_name, above), (prompt_label, measure_name, above))
