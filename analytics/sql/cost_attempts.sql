-- Cost of all attempts of requests with more than one (retries, hedges, continuations, rejected cascade answers), and
-- the recorded cost of the same requests; the difference was not charged to the payer. By labels of the request ({by})
-- and by period: {starts} are the periods' starts (Unix s), ascending. An attempt may begin up to a day later.
SELECT
    {{cost_labels}},
    toInt64(sum(tries.attempt_count)) - toInt64(count()) AS more_count,
    sum(tries.attempt_sum) - sum(ifNull(cost_usd, toDecimal64(0, 12))) AS more_cost_sum,
    greatest(toInt64(sum(tries.unpriced_count)) - toInt64(countIf(price_state IN ('unpriced', 'unknown_usage'))), 0)
        AS unpriced_more_count
FROM
(
    SELECT
        request_id, started_at, tenant, team, project, key_id, end_user, model, provider, adapter, prompt_name,
        prompt_version, price_version, operation, tags, conversation_id, tools, cost_usd, price_state
    FROM requests
    WHERE {{requests_asked_for}}
        AND requests.attempts > 1
) AS tried
INNER JOIN
(
    SELECT
        request_id,
        count() AS attempt_count,
        sum(ifNull(cost_usd, toDecimal64(0, 12))) AS attempt_sum,
        countIf(price_state IN ('unpriced', 'unknown_usage')) AS unpriced_count
    FROM attempts
    WHERE number > 0
        AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32} + 86400, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    GROUP BY request_id
) AS tries USING (request_id)
GROUP BY
    {{cost_label_names}}
LIMIT {line_limit:UInt32}
