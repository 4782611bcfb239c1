-- Properties of answers by tenant and model, in the window from {split} on and in the reference before it: number,
-- lengths in tokens and finish reasons as maps of counts, answers with tool calls, and answers whose JSON violated the
-- schema. Copies to a rollout's candidate (`_platform`) are included only if that tenant is asked for. Rollups lack
-- these, so it reads a few columns of the requests.
SELECT
    tenant,
    model,
    started_at >= toDateTime({split:UInt32}, 'UTC') AS is_current,
    count() AS answers,
    sumMap(map(toUInt32(ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)), toUInt64(1))) AS lengths,
    sumMap(map(toString(finish_reason), toUInt64(1))) AS reasons,
    countIf(tool_calls > 0) AS with_tools,
    countIf(schema_failed) AS schema_failures,
    count(schema_failed) AS with_schema
FROM requests
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND outcome = 'ok'
    AND (tokens_output_text IS NOT NULL OR tokens_output_reasoning IS NOT NULL)
GROUP BY tenant, model, is_current
ORDER BY tenant, model, is_current
