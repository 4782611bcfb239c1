-- Booked corrections and credits of a range's usage, by adjustment, payer, model and recorded price, and by period of
-- the usage: {starts} are the periods' starts (Unix s), ascending. Money in pico-USD.
SELECT
    tenant AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    model AS model_label,
    provider AS provider_label,
    price_version AS price_label,
    adjustment AS adjustment_label,
    kind AS kind_label,
    card_version AS card_label,
    invoice AS invoice_label,
    toInt64(roundDown(toUnixTimestamp(used_at), {starts:Array(UInt32)})) AS period_start,
    sum(requests) AS request_count,
    sum(unpriced_input_tokens + unpriced_output_tokens) AS unpriced_token_sum,
    reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum
FROM book_entries FINAL
WHERE used_at >= toDateTime({start:UInt32}, 'UTC')
    AND used_at < toDateTime({end:UInt32}, 'UTC')
    AND {{of_whom}}
GROUP BY
    tenant_label, team_label, project_label, key_label, model_label, provider_label, price_label, adjustment_label,
    kind_label, card_label, invoice_label, period_start
ORDER BY
    tenant_label, team_label, project_label, key_label, model_label, provider_label, price_label, adjustment_label,
    kind_label, card_label, invoice_label, period_start
