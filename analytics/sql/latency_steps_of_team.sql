-- How many requests took how long, in steps that are a fifth to a third apart (contracts/rules/objectives.py): of the time to
-- the first token, of the time between tokens (each request's own 95th percentile), and from end to end of what was
-- answered. Once over time, and once by how long the prompt was.
-- From the requests themselves, as the rollups of latency_steps.sql were filled from them (migration 0018), which do
-- not tell teams apart. {bounds} are the steps in tenths of a millisecond, ascending from 0.
-- Copies to a rollout's candidate (`_platform`), whose answers nobody saw, are in it only where they are asked for.
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
