-- The values of a filter, and when each was last seen (Unix s). {kind} is tenant, model, team and so on. No time range:
-- the table has a row per value, not per request.
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
