-- Requests, tokens and cost from the requests themselves, by any of their labels ({by}) and by period: {starts} are the
-- periods' first seconds, ascending. Money in pico-USD. `tag:` in {by} is the value of the tag {tag}, `tags` all tags of a request at once.
-- {only_unpriced} leaves out all but what no amount stands for. `price_state` is the one definition of why (0030).
SELECT
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(has({by:Array(String)}, 'user'), end_user, '') AS user_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    if(has({by:Array(String)}, 'provider'), provider, '') AS provider_label,
    if(has({by:Array(String)}, 'adapter'), adapter, '') AS adapter_label,
    if(has({by:Array(String)}, 'prompt'), prompt_name, '') AS prompt_label,
    if(has({by:Array(String)}, 'prompt_version'), prompt_version, '') AS prompt_version_label,
    if(has({by:Array(String)}, 'price'), price_version, '') AS price_label,
    if(has({by:Array(String)}, 'operation'), operation, '') AS operation_label,
    if(has({by:Array(String)}, 'session'), conversation_id, '') AS session_label,
    if(has({by:Array(String)}, 'repo'), tags['repo'], '') AS repo_label,
    if(has({by:Array(String)}, 'branch'), tags['branch'], '') AS branch_label,
    if(has({by:Array(String)}, 'pr'), tags['pr'], '') AS pr_label,
    if(has({by:Array(String)}, 'agent'), tags['agent'], '') AS agent_label,
    if(
        has({by:Array(String)}, 'tool'),
        if(operation = 'execute_tool', model, arrayStringConcat(arraySort(arrayDistinct(tools)), ',')),
        ''
    ) AS tool_label,
    if(has({by:Array(String)}, 'tag:'), tags[{tag:String}], '') AS tag_label,
    if(
        has({by:Array(String)}, 'tags'),
        arrayStringConcat(arraySort(arrayMap(pair -> concat(pair.1, '=', pair.2), CAST(tags, 'Array(Tuple(String, String))'))), ','),
        ''
    ) AS tags_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start,
    count() AS request_count,
    countIf(outcome = 'rejected') AS rejected_count,
    sum(
        ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0)
    ) AS input_sum,
    sum(ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)) AS cached_input_sum,
    sum(
        ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)
        + ifNull(tokens_output_audio, 0) + ifNull(tokens_output_image, 0)
    ) AS output_sum,
    reinterpret(sum(ifNull(cost_usd, toDecimal64(0, 12))), 'Int128') AS cost_pico_sum,
    reinterpret(sum(ifNull(charged_usd, toDecimal64(0, 12))), 'Int128') AS charged_pico_sum,
    countIf(price_state = 'unpriced') AS unpriced_count,
    sum(unpriced_input_tokens) AS unpriced_input_sum,
    sum(unpriced_output_tokens) AS unpriced_output_sum,
    countIf(price_state = 'unknown_usage') AS unknown_usage_count,
    sum(
        ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0)
    ) AS gpu_sum,
    countIf(price_state = 'failed') AS failed_count,
    countIf(price_state = 'partly_unpriced') AS partly_unpriced_count,
    countIf(count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')) AS estimated_count,
    reinterpret(
        sumIf(
            ifNull(cost_usd, toDecimal64(0, 12)),
            count_method = 'estimate' AND price_state IN ('priced', 'partly_unpriced')
        ),
        'Int128'
    ) AS estimated_pico_sum
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND ({only_unpriced:Bool} = false OR price_state IN ('failed', 'unknown_usage', 'unpriced', 'partly_unpriced'))
GROUP BY
    tenant_label, team_label, project_label, key_label, user_label, model_label, provider_label, adapter_label,
    prompt_label, prompt_version_label, price_label, operation_label, session_label, repo_label, branch_label, pr_label,
    agent_label, tool_label, tag_label, tags_label, period_start
LIMIT {line_limit:UInt32}
