-- Number of requests that count for objectives, and of bad ones among them, in windows that all end at {end}. {rollup}
-- is indicators_minute or indicators_hour. {starts} are the windows' starts (Unix s), the earliest is {start}.
-- Objectives are given as parallel arrays: a number, an indicator and its thresholds in tenths of a millisecond (0:
-- none). {by_model} and similar: whether objectives distinguish these; else they are summed. Copies to a rollout's
-- candidate (`_platform`) do not count. A request whose client disconnected before the first token is bad if it waited
-- longer than the threshold.
SELECT
    number,
    tenant,
    model,
    route,
    prompt_class,
    sumForEachIf(
        windows,
        multiIf(
            indicator = 'availability', fate != 'cancelled',
            indicator = 'inter_token', fate != 'failed' AND gap_above >= 0,
            indicator = 'end_to_end', fate = 'ok' OR (fate = 'cancelled' AND is_late),
            indicator = 'ttft', (fate != 'failed' AND ttft_above >= 0) OR left_waiting,
            fate != 'cancelled' OR left_waiting
        )
    ) AS totals,
    sumForEachIf(
        windows,
        multiIf(
            indicator = 'availability', fate = 'failed',
            indicator = 'inter_token', fate != 'failed' AND is_uneven,
            indicator = 'end_to_end', fate != 'failed' AND is_late,
            indicator = 'ttft', (fate != 'failed' AND is_slow) OR left_waiting,
            fate = 'failed' OR left_waiting OR (fate = 'ok' AND (is_slow OR is_uneven OR is_late))
        )
    ) AS bads
FROM
(
    SELECT
        number,
        indicator,
        tenant,
        model,
        route,
        prompt_class,
        fate,
        windows,
        gap_above,
        ttft_above,
        ttft_limit > 0 AND ttft_above >= ttft_limit AS is_slow,
        gap_limit > 0 AND gap_above >= gap_limit AS is_uneven,
        duration_limit > 0 AND duration_above >= duration_limit AS is_late,
        fate = 'cancelled' AND ttft_above < 0 AND ttft_limit > 0 AND duration_above >= ttft_limit AS left_waiting
    FROM
    (
        SELECT
            tenant,
            if({by_model:Bool}, toString(model), '') AS model,
            if({by_route:Bool}, toString(route), '') AS route,
            if({by_prompt_class:Bool}, toString(prompt_class), '') AS prompt_class,
            fate,
            ttft_above,
            gap_above,
            duration_above,
            sumForEach(
                arrayMap(since -> if(bucket >= toDateTime(since, 'UTC'), source.requests, 0), {starts:Array(UInt32)})
            ) AS windows
        FROM {rollup:Identifier} AS source
        WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
            AND bucket < toDateTime({end:UInt32}, 'UTC')
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
            AND tenant != '_platform'
        GROUP BY tenant, model, route, prompt_class, fate, ttft_above, gap_above, duration_above
    )
    ARRAY JOIN
        {numbers:Array(UInt32)} AS number,
        {indicators:Array(String)} AS indicator,
        {ttft_limits:Array(Int32)} AS ttft_limit,
        {gap_limits:Array(Int32)} AS gap_limit,
        {duration_limits:Array(Int32)} AS duration_limit
)
GROUP BY number, tenant, model, route, prompt_class
