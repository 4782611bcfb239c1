-- What was used that is counted in units and not in tokens: images, milliseconds of sound, characters, requests of an
-- operation sold by the request. By any labels of the requests ({by}) and by period: {starts} are the periods' first
-- seconds, ascending. Rollups have tokens alone, so this reads requests, and of these only the ones with units.
SELECT
    {{cost_labels}},
    {{unit_sums}} AS unit_counts
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND isNotNull({{any_unit}})
GROUP BY
    {{cost_label_names}}
LIMIT {line_limit:UInt32}
