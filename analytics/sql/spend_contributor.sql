-- The key, user and model whose spending of a tenant grew most, from one range ({before} to {before_end}, Unix s) to
-- another ({start} to {end}). No row if nothing grew.
SELECT
    key_id AS key_label,
    end_user AS user_label,
    model AS model_label,
    countIf(started_at >= toDateTime64({start:UInt32}, 9, 'UTC')) AS request_count,
    sumIf(ifNull(cost_usd, toDecimal64(0, 12)), started_at >= toDateTime64({start:UInt32}, 9, 'UTC'))
        - sumIf(ifNull(cost_usd, toDecimal64(0, 12)), started_at < toDateTime64({before_end:UInt32}, 9, 'UTC'))
        AS more_usd
FROM requests
WHERE tenant = {tenant:String}
    AND (
        started_at >= toDateTime64({before:UInt32}, 9, 'UTC') AND started_at < toDateTime64({before_end:UInt32}, 9, 'UTC')
        OR started_at >= toDateTime64({start:UInt32}, 9, 'UTC') AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    )
GROUP BY key_label, user_label, model_label
HAVING more_usd > 0
ORDER BY more_usd DESC, key_label, user_label, model_label
LIMIT 1
