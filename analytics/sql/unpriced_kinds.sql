-- Which kinds of tokens had no price though the rest of their request had one, by tenant and model.
SELECT tenant, model, arraySort(groupUniqArrayArray(unpriced_leaves)) AS kinds
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND price_state = 'partly_unpriced'
GROUP BY tenant, model
