-- Costs that providers stated in responses (OpenRouter in USD, xAI in ticks of 10^-10 USD), the recorded costs of the
-- same requests, and the number of answers without a stated cost.
SELECT
    provider AS provider_label,
    replica AS target_label,
    model AS model_label,
    countIf(isNotNull(stated)) AS stated_count,
    countIf(isNull(stated)) AS unstated_count,
    sum(ifNull(stated, toDecimal64(0, 12))) AS stated_sum,
    sumIf(ifNull(cost_usd, toDecimal64(0, 12)), isNotNull(stated)) AS recorded_sum
FROM
(
    SELECT
        provider,
        replica,
        model,
        cost_usd,
        multiIf(
            JSONHas(provider_usage, 'cost_in_usd_ticks'),
            toDecimal64OrNull(JSONExtractRaw(provider_usage, 'cost_in_usd_ticks'), 0) * toDecimal64('0.0000000001', 12),
            JSONHas(provider_usage, 'cost'),
            toDecimal64OrNull(JSONExtractRaw(provider_usage, 'cost'), 12),
            NULL
        ) AS stated
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND outcome != 'rejected'
        AND price_state != 'failed'
        AND cache NOT IN ('hit', 'semantic_hit')
)
GROUP BY provider_label, target_label, model_label
HAVING stated_count > 0
ORDER BY provider_label, target_label, model_label
