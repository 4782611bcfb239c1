-- The models, projects or keys that one team used from {start} to {end} (Unix s), and when each was last seen.
-- {dimension} is model, project or key_id. Without a team, distinct_values is faster.
SELECT
    toString({dimension:Identifier}) AS value,
    toUnixTimestamp(max(started_at)) AS last_seen_s
FROM requests
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND value != ''
GROUP BY value
ORDER BY value
LIMIT {value_limit:UInt32}
