-- Requests that reached a model and have no price, and requests of which one kind of token has no price, by tenant and
-- model: these are not billed. Failures and unknown usage are excluded. {rollup} is requests_minute.
SELECT
    tenant,
    model,
    sum(source.no_price_requests) AS unpriced_count,
    sum(source.partly_unpriced_requests) AS partly_unpriced_count,
    sum(source.unpriced_input_tokens) + sum(source.unpriced_output_tokens) AS unpriced_token_sum
FROM {rollup:Identifier} AS source
WHERE bucket >= toDateTime({start:UInt32}, 'UTC')
    AND bucket < toDateTime({end:UInt32}, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND source.no_price_requests + source.partly_unpriced_requests > 0
GROUP BY tenant, model
ORDER BY tenant, model
