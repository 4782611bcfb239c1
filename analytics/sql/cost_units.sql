-- Usage counted in units instead of tokens: images, milliseconds of audio, characters, requests of operations with a
-- price per request. By labels of the requests ({by}) and by period: {starts} are the periods' starts (Unix s),
-- ascending. Rollups have only tokens, so this reads the requests with units.
SELECT
    {{cost_labels}},
    {{unit_sums}} AS unit_counts
FROM requests
WHERE {{requests_asked_for}}
    AND isNotNull({{any_unit}})
GROUP BY
    {{cost_label_names}}
LIMIT {line_limit:UInt32}
