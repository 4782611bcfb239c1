-- Evidence for recommendations: each tenant's use of each model, in total and of three kinds: small requests (up to
-- 1,000 tokens in, 200 out, no tool), non-interactive ones (not streamed, without conversation and end user, not priced
-- as a batch), and uncached input that the previous turn had sent already. In rows with equal prices by any card: by
-- region if a card is for it ({own_regions}), service tier, and the number of {thresholds} that the input exceeds.
-- Cache writes count as input, as another model would receive them. NULL usage and money are excluded, as are audio and
-- images, which have other prices.
SELECT
    tenant AS tenant_label,
    model AS model_label,
    provider AS provider_label,
    own_region AS region_label,
    own_tier AS service_tier_label,
    tier_number,
    count() AS request_count,
    sum(fresh + written) AS fresh_sum,
    sum(cached) AS cached_sum,
    sum(produced) AS produced_sum,
    countIf(is_small) AS small_count,
    sumIf(fresh + written, is_small) AS small_fresh,
    sumIf(cached, is_small) AS small_cached,
    sumIf(produced, is_small) AS small_produced,
    countIf(is_patient) AS patient_count,
    sumIf(fresh + written, is_patient) AS patient_fresh,
    sumIf(cached, is_patient) AS patient_cached,
    sumIf(produced, is_patient) AS patient_produced,
    sum(if(conversation_id = '', 0, least(fresh, sent_before))) AS repeated_sum,
    countIf(conversation_id != '' AND sent_before > 0) AS later_turns
FROM
(
    SELECT
        tenant,
        model,
        provider,
        if(has({own_regions:Array(String)}, region), region, '') AS own_region,
        if(service_tier = '' AND endsWith(price_version, '#batch'), 'batch', service_tier) AS own_tier,
        {{thresholds_passed}} AS tier_number,
        conversation_id,
        ifNull(cost_usd, 0) AS cost,
        ifNull(tokens_input_text, 0) AS fresh,
        ifNull(tokens_cache_read_text, 0) AS cached,
        {{written_sum}} AS written,
        ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0) AS produced,
        fresh + written + cached <= 1000 AND produced <= 200 AND ifNull(tool_calls, 0) = 0 AS is_small,
        NOT stream AND conversation_id = '' AND end_user = '' AND NOT endsWith(price_version, '#batch') AS is_patient,
        lagInFrame(toUInt64(fresh + written + cached), 1, 0)
            OVER (PARTITION BY tenant, model, conversation_id ORDER BY started_at) AS sent_before
    FROM requests
    WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND started_at >= toDateTime({start:UInt32}, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND isNotNull(cost_usd)
        AND {{media_sum}} = 0
        AND cache NOT IN ('hit', 'semantic_hit')
)
GROUP BY tenant_label, model_label, provider_label, region_label, service_tier_label, tier_number
ORDER BY sum(cost) DESC, tenant_label, model_label, provider_label, region_label, service_tier_label, tier_number
LIMIT {row_limit:UInt32}
