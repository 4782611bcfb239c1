-- The values a filter offers, and when each was last seen (Unix seconds). {kind} is tenant, model, team, ...
-- No time range: this table holds a row per value, not per request.
SELECT
    value,
    toUnixTimestamp(max(last_seen)) AS last_seen_s
FROM distinct_values
WHERE kind = {kind:String}
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND value != ''
GROUP BY value
ORDER BY value
LIMIT {value_limit:UInt32}
