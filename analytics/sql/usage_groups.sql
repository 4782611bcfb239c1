-- Requests that a model saw, in groups within which any price card asks the same for a token: so that a card's price of
-- the sums is the sum of its prices, and every cost can be computed again from cards. Rejected ones are left out.
-- `shape` packs what a price depends on: bits 0-10 which leaves have tokens, 11 and 12 whether input and output are
-- known, 13 input alone is billed, 14 an engine of ours, 15 a kept answer, 16 priced as a batch, 17 counted by estimate;
-- from bit 20 the number of {thresholds} the input exceeds; from bit 32 how many {changes} (Unix nanoseconds) lie before.
SELECT
    tenant AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(
        has({by:Array(String)}, 'tags'), toJSONString(arraySort(CAST(tags, 'Array(Tuple(String, String))'))), ''
    ) AS tags_label,
    model AS model_label,
    provider AS provider_label,
    price_version AS price_label,
    cost_basis AS basis_label,
    price_state AS state_label,
    if(price_state = 'partly_unpriced', arrayStringConcat(arraySort(unpriced_leaves), ','), '') AS unpriced_labels,
    service_tier AS tier_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start,
    toUInt64(ifNull(tokens_input_text, 0) > 0)
        + toUInt64(ifNull(tokens_input_audio, 0) > 0) * 2
        + toUInt64(ifNull(tokens_input_image, 0) > 0) * 4
        + toUInt64(ifNull(tokens_cache_read_text, 0) > 0) * 8
        + toUInt64(ifNull(tokens_cache_read_audio, 0) > 0) * 16
        + toUInt64(ifNull(tokens_cache_write_5m, 0) > 0) * 32
        + toUInt64(ifNull(tokens_cache_write_1h, 0) > 0) * 64
        + toUInt64(ifNull(tokens_output_text, 0) > 0) * 128
        + toUInt64(ifNull(tokens_output_reasoning, 0) > 0) * 256
        + toUInt64(ifNull(tokens_output_audio, 0) > 0) * 512
        + toUInt64(ifNull(tokens_output_image, 0) > 0) * 1024
        + toUInt64(isNotNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image,
            tokens_cache_read_text, tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h
        ))) * 2048
        + toUInt64(isNotNull(coalesce(
            tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
        ))) * 4096
        + toUInt64(operation IN ('embeddings', 'rerank', 'score')) * 8192
        + toUInt64(provider = 'engine' OR attribution_method != '') * 16384
        + toUInt64(cache IN ('hit', 'semantic_hit')) * 32768
        + toUInt64(endsWith(price_version, '#batch')) * 65536
        + toUInt64(count_method = 'estimate') * 131072
        + toUInt64({{thresholds_passed}}) * 1048576
        + toUInt64(arrayCount(moment -> toUnixTimestamp64Nano(started_at) >= moment, {changes:Array(Int64)}))
            * 4294967296 AS shape,
    count() AS request_count,
    countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count,
    sum(ifNull(cost_usd, toDecimal64(0, 12))) AS cost_sum,
    {{leaf_sums}} AS leaf_sums
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome != 'rejected'
GROUP BY
    tenant_label, team_label, project_label, key_label, tags_label, model_label, provider_label, price_label, basis_label,
    state_label, unpriced_labels, tier_label, period_start, shape
LIMIT {line_limit:UInt32}
