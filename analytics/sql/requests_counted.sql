-- Number of requests that match a search, over time and by outcome; time steps of {step} seconds from {origin}. Filters
-- as in parts/requests_searched.sql.
SELECT
    intDiv(toUnixTimestamp(toDateTime(started_at, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
        + {origin:UInt32} AS step_start,
    outcome AS outcome_label,
    count() AS request_count
FROM requests
WHERE {{requests_searched}}
GROUP BY step_start, outcome_label
