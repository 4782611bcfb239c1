-- The result of latency_steps.sql for a team, from single requests, as its rollups (migration 0018) have no teams.
-- {bounds} are the buckets in tenths of a millisecond, ascending from 0. Copies to a rollout's candidate (`_platform`)
-- are included only if that tenant is asked for.
SELECT
    grouping(prompt_label) AS is_over_time,
    step_start,
    prompt_label,
    measure.1 AS measure_name,
    measure.2 AS above,
    count() AS request_sum
FROM
(
    SELECT
        intDiv(toUnixTimestamp(toDateTime(started_at, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        {{input_sum}} AS prompt_tokens,
        multiIf(
            isNull({{any_input}}), 'unknown',
            prompt_tokens < 1024, 'short',
            prompt_tokens < 8192, 'medium',
            prompt_tokens < 32768, 'long',
            'very_long'
        ) AS prompt_label,
        if(
            isNull(ttft_ns),
            -1,
            toInt32(roundDown(intDiv(toInt64(ifNull(ttft_ns, 0)) - 1, 100000), {bounds:Array(Int64)}))
        ) AS ttft_above,
        if(
            empty(gaps),
            -1,
            toInt32(roundDown(
                intDiv(toInt64(arraySort(gaps)[toUInt32(ceil(length(gaps) * 0.95))]) - 1, 10), {bounds:Array(Int64)}
            ))
        ) AS gap_above,
        if(
            outcome = 'ok',
            toInt32(roundDown(intDiv(toInt64(duration_ns) - 1, 100000), {bounds:Array(Int64)})),
            -1
        ) AS duration_above
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
        AND (outcome IN ('ok', 'cancelled') OR status >= 500 OR error_code = 'upstream_rate_limited')
)
ARRAY JOIN
    [('ttft', ttft_above), ('inter_token', gap_above), ('end_to_end', duration_above)] AS measure
WHERE measure.2 >= 0
GROUP BY GROUPING SETS ((step_start, measure_name, above), (prompt_label, measure_name, above))
