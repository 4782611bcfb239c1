-- What was used that is counted in units and not in tokens: images, milliseconds of sound, characters, requests of an
-- operation sold by the request. By any labels of the requests ({by}) and by period: {starts} are the periods' first
-- seconds, ascending. Rollups have tokens alone, so this reads requests, and of these only the ones with units.
SELECT
    {{cost_labels}},
    {{unit_sums}} AS unit_counts
FROM requests
WHERE {{requests_asked_for}}
    AND isNotNull({{any_unit}})
GROUP BY
    {{cost_label_names}}
LIMIT {line_limit:UInt32}
