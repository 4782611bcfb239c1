-- Requests that reached a model and have no price, by tenant and model: they are on no bill. {rollup} is requests_hour.
SELECT
    tenant,
    model,
    sum(source.unpriced_requests) AS unpriced_count,
    sum(source.input_tokens) + sum(source.output_tokens) AS token_sum
FROM {rollup:Identifier} AS source
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND source.unpriced_requests > 0
GROUP BY tenant, model
ORDER BY tenant, model
