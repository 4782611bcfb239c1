-- Load of engines over time: batch size, queue length, KV cache, prefix cache hits. Time steps of {step} s from
-- {origin}.
SELECT
    step_start,
    engine,
    sum(step_count) AS step_count,
    sum(slot_sum) AS slot_sum,
    sum(token_sum) AS token_sum,
    sum(prefill_sum) AS prefill_sum,
    sum(cached_sum) AS cached_sum,
    sum(waiting_sum) AS waiting_sum,
    max(waiting_most) AS waiting_most,
    max(running_most) AS running_most,
    sum(kv_sum) AS kv_sum,
    max(kv_most) AS kv_most,
    max(kv_total) AS kv_total
FROM
(
    SELECT
        intDiv(toUnixTimestamp(bucket) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        engine,
        source.steps AS step_count,
        source.batch_slots AS slot_sum,
        source.scheduled_tokens AS token_sum,
        0 AS prefill_sum,
        source.cached_tokens AS cached_sum,
        source.waiting_sum AS waiting_sum,
        source.waiting_max AS waiting_most,
        source.running_max AS running_most,
        source.kv_blocks_used_sum AS kv_sum,
        source.kv_blocks_used_max AS kv_most,
        source.kv_blocks_total_max AS kv_total
    FROM engine_minutes AS source
    WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
        AND bucket < toDateTime({end:UInt32}, 'UTC')
        AND kind = 'step'
    UNION ALL
    SELECT
        intDiv(toUnixTimestamp(bucket) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
            + {origin:UInt32} AS step_start,
        engine,
        0, 0, 0,
        source.scheduled_tokens,
        0, 0, 0, 0, 0, 0, 0
    FROM engine_tenant_minutes AS source
    WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
        AND bucket < toDateTime({end:UInt32}, 'UTC')
        AND phase = 0
)
GROUP BY step_start, engine
ORDER BY engine, step_start
