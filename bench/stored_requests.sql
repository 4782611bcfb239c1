-- Requests as a gateway records them, made inside the store: rows {first} to {first} + {rows} of {all_rows}, spread
-- evenly over {days} days from {start} (Unix seconds). Every answer has 201 tokens, streamed, so 200 gaps; those of
-- rows before {gaps_from} are left out.
--
-- Tenants, their users and models are asked by Zipf's law. Half the models are on engines of one's own (GPU time, no
-- price card), one request in four is traced by its caller, one in fifty fails, is refused or left. Gaps are
-- log-normal with a sigma of 0.5 about a median of 6 to 18 ms by model: slices of one long pool of draws, whose
-- beginnings are hashed, so that no compressor finds them twice.
INSERT INTO requests
(
    request_id, started_at, duration_ns, tenant, team, project, key_id, end_user, operation, api, outcome, status,
    error_code, finish_reason, stream, requested_model, model, provider, pool, replica, gateway, ttft_ns, admission_ns,
    queue_ns, gaps, gap_clock, tokens_input_text, tokens_cache_read_text, tokens_output_text, count_method,
    engine_output_tokens, cost_usd, cost_basis, price_version, charged_usd, gpu_prefill_ns, gpu_decode_ns,
    gpu_recompute_ns, gpu_wasted_ns, kv_block_seconds, attribution_method, attribution_confidence, attempts,
    max_tokens, choices, temperature, request_bytes, response_bytes, reserved_tokens, trace_id, span_id,
    conversation_id, priority, wait_ns, charge_offsets_ns, charge_tokens
)
WITH
    (
        SELECT groupArray(toUInt32(round(exp(6.4 + 0.1 * intDiv(number, 65536) + 0.5 * randNormal(0, 1, number)))))
        FROM numbers(786432)
    ) AS draws,
    200 AS gap_count
SELECT
    -- The engine keeps a UUID's first half in the lower bits.
    reinterpret(
        bitOr(
            toUInt128(bitOr(bitShiftLeft(toUInt64(intDiv(at_ns, 1000000)), 16), 28672 + h9 % 4096)),
            bitShiftLeft(toUInt128(bitOr(9223372036854775808, bitShiftRight(cityHash64(row, 20), 2))), 64)
        ),
        'UUID'
    ) AS request_id,
    fromUnixTimestamp64Nano(at_ns, 'UTC') AS started_at,
    if(is_served, ttft + toUInt64(arraySum(gaps)) * 10000 + h4 % 900000, 300000 + h4 % 200000) AS duration_ns,
    concat('tenant-', leftPad(toString(tenant_rank), 4, '0')) AS tenant,
    concat('team-', toString(h5 % least(3, 1 + intDiv(1000, tenant_rank + 99)))) AS team,
    concat(team, '-project-', toString(intDiv(h5, 16) % 2)) AS project,
    concat('key_', lower(hex(cityHash64(tenant, project, intDiv(h5, 64) % 2)))) AS key_id,
    concat('user-', toString(toUInt32(exp(u6 * ln(2000))))) AS end_user,
    'chat' AS operation,
    'chat.completions' AS api,
    multiIf(h7 % 200 = 0, 'rejected', h7 % 200 = 1, 'cancelled', h7 % 200 < 4, 'error', 'ok') AS outcome,
    multiIf(outcome = 'rejected', 429, outcome = 'cancelled', 499, outcome = 'error', 502, 200) AS status,
    multiIf(outcome = 'rejected', 'rate_limited', outcome = 'error', 'backend_error', '') AS error_code,
    if(outcome = 'ok', if(h7 % 11 = 0, 'length', 'stop'), '') AS finish_reason,
    1 AS stream,
    concat('model-', toString(model_rank)) AS requested_model,
    if(is_served, requested_model, '') AS model,
    if(is_served, if(is_own, 'tollkeeper', ['openai', 'anthropic', 'google'][1 + intDiv(model_rank, 2) % 3]), '')
        AS provider,
    model AS pool,
    if(is_served, concat(model, '-', toString(h9 % 4)), '') AS replica,
    concat('gateway-', toString(h9 % 2)) AS gateway,
    if(is_served, ttft, NULL) AS ttft_ns,
    28000 + h8 % 9000 AS admission_ns,
    if(is_served AND is_own, toUInt64(exp(12 + 2 * u4)), NULL) AS queue_ns,
    arraySlice(draws, 1 + (model_rank - 1) * 65536 + h8 % 65300, is_served * (row >= {gaps_from:UInt64}) * gap_count) AS gaps,
    if(is_served, if(is_own, 'engine', 'gateway'), 'none') AS gap_clock,
    if(is_served, toUInt32(exp(5 + 2.5 * u5)), NULL) AS tokens_input_text,
    if(is_served, if(h5 % 3 = 0, intDiv(h5, 3) % 40 * 64, 0), NULL) AS tokens_cache_read_text,
    if(is_served, gap_count + 1, NULL) AS tokens_output_text,
    if(is_served, if(is_own, 'exact', 'reported'), 'none') AS count_method,
    if(is_served AND is_own, gap_count + 1, NULL) AS engine_output_tokens,
    if(
        is_served AND NOT is_own,
        CAST((tokens_input_text * (100 + 25 * model_rank) + tokens_output_text * 4 * (100 + 25 * model_rank)) / 1e9
            AS Decimal(18, 12)),
        NULL
    ) AS cost_usd,
    if(is_served, if(is_own, 'standard_card', 'price_card'), 'unpriced') AS cost_basis,
    if(is_served, '2026-11', '') AS price_version,
    if(
        is_served,
        CAST((tokens_input_text * (100 + 25 * model_rank) + tokens_output_text * 4 * (100 + 25 * model_rank)) / 1e9
            AS Decimal(18, 12)),
        NULL
    ) AS charged_usd,
    if(is_served AND is_own, toUInt64(tokens_input_text * (30000 + h4 % 9000)), NULL) AS gpu_prefill_ns,
    if(is_served AND is_own, 60000000 + h8 % 200000000, NULL) AS gpu_decode_ns,
    if(is_served AND is_own, 0, NULL) AS gpu_recompute_ns,
    if(is_served AND is_own, 0, NULL) AS gpu_wasted_ns,
    if(is_served AND is_own, (tokens_input_text + 201) / 16 * duration_ns / 1e9, NULL) AS kv_block_seconds,
    if(is_served AND is_own, 'steptime-as/1', '') AS attribution_method,
    if(is_served AND is_own, 0.95, NULL) AS attribution_confidence,
    1 AS attempts,
    [256, 512, 1024, 4096][1 + h9 % 4] AS max_tokens,
    1 AS choices,
    if(h9 % 2 = 0, NULL, 0.7) AS temperature,
    toUInt32(exp(5 + 2.5 * u5) * 4.2) + 300 + h5 % 90 AS request_bytes,
    if(is_served, 48000 + h4 % 3000, 180) AS response_bytes,
    if(is_served, toUInt32(exp(5 + 2.5 * u5)) + max_tokens, NULL) AS reserved_tokens,
    if(h9 % 4 = 0, CAST(sipHash128(row, 21) AS String), '') AS trace_id,
    if(h9 % 4 = 0, substring(CAST(sipHash128(row, 23) AS String), 1, 8), '') AS span_id,
    if(h9 % 5 = 0, concat('conversation-', toString(cityHash64(row, 24) % 1000000)), '') AS conversation_id,
    if(h9 % 7 = 0, 'batch', 'interactive') AS priority,
    if(h9 % 3 = 0, 20000 + h4 % 400000, NULL) AS wait_ns,
    if(is_served, [0], []) AS charge_offsets_ns,
    if(is_served, [toUInt32(tokens_input_text + 201)], []) AS charge_tokens
FROM
(
    SELECT
        {first:UInt64} + number AS row,
        cityHash64(row, 4) AS h4,
        cityHash64(row, 5) AS h5,
        cityHash64(row, 7) AS h7,
        cityHash64(row, 8) AS h8,
        cityHash64(row, 9) AS h9,
        h4 / 18446744073709551616 AS u4,
        h5 / 18446744073709551616 AS u5,
        cityHash64(row, 6) / 18446744073709551616 AS u6,
        toInt64({start:UInt32}) * 1000000000
            + toInt64((row + cityHash64(row, 3) / 18446744073709551616) * {days:UInt32} * 86400e9 / {all_rows:UInt64})
            AS at_ns,
        toUInt32(exp(cityHash64(row, 1) / 18446744073709551616 * ln({tenants:UInt32} + 1))) AS tenant_rank,
        toUInt32(exp(cityHash64(row, 2) / 18446744073709551616 * ln(13))) AS model_rank,
        model_rank % 2 = 1 AS is_own,
        h7 % 200 != 0 AS is_served,
        toUInt64(exp(17.5 + 0.1 * model_rank) * (0.6 + exp(2 * u4 - 1))) AS ttft
    FROM numbers({rows:UInt64})
)
