-- Latency histograms, with buckets a fifth to a third apart (contracts/rules/objectives.py): of time to first token,
-- inter-token latency (each request's own 95th percentile), and end-to-end latency of answered requests; over time, and
-- by prompt length. {rollup} is indicators_minute or indicators_hour; time steps of {step} seconds from {origin}.
-- Copies to a rollout's candidate (`_platform`) are included only if that tenant is asked for.
SELECT
    grouping(prompt_label) AS is_over_time,
    step_start,
    prompt_label,
    measure.1 AS measure_name,
    measure.2 AS above,
    sum(request_count) AS request_sum
FROM
(
    SELECT
        intDiv(toUnixTimestamp(bucket) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        toString(prompt_class) AS prompt_label,
        fate,
        ttft_above,
        gap_above,
        duration_above,
        sum(source.requests) AS request_count
    FROM {rollup:Identifier} AS source
    WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
        AND bucket < toDateTime({end:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    GROUP BY step_start, prompt_label, fate, ttft_above, gap_above, duration_above
)
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', if(fate = 'ok', duration_above, -1))] AS measure
WHERE measure.2 >= 0
GROUP BY GROUPING SETS ((step_start, measure_name, above), (prompt_label, measure_name, above))
