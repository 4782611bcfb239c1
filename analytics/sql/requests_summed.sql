-- Number of requests over time and by outcome; time steps of {step} seconds from {origin}. Read from the coarsest
-- rollups that fit the steps: whole days from {days} ({first_day} to {end_day}), the hours outside them from
-- requests_hour ({first_hour} to {end_hour}), the minutes outside these from requests_minute ({first_minute} to
-- {end_minute}), all Unix seconds, and the rest of {start} to {end} from single requests. {days} is requests_day or
-- tenant_model_day, which has no teams and projects.
SELECT
    intDiv(at - {origin:UInt32}, {step:UInt32}) * {step:UInt32} + {origin:UInt32} AS step_start,
    outcome_label,
    sum(request_part) AS request_count
FROM
(
    SELECT toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, outcome AS outcome_label, sum(requests) AS request_part
    FROM {days:Identifier}
    WHERE {{whole_days}}
        AND {{of_whom}}
        AND ({outcome:Nullable(String)} IS NULL OR outcome = {outcome:Nullable(String)})
    GROUP BY at, outcome_label
    UNION ALL
    SELECT toUnixTimestamp(toDateTime(bucket, 'UTC')) AS at, outcome AS outcome_label, sum(hours.requests) AS request_part
    FROM requests_hour AS hours
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({first_hour:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end_hour:UInt32}, 'UTC')
        AND ({first_hour:UInt32} < {first_day:UInt32} OR {end_hour:UInt32} > {end_day:UInt32})
        AND (toDateTime(bucket, 'UTC') < toDateTime({first_day:UInt32}, 'UTC')
            OR toDateTime(bucket, 'UTC') >= toDateTime({end_day:UInt32}, 'UTC'))
        AND {{of_whom}}
        AND ({outcome:Nullable(String)} IS NULL OR outcome = {outcome:Nullable(String)})
    GROUP BY at, outcome_label
    UNION ALL
    SELECT toUnixTimestamp(bucket) AS at, outcome AS outcome_label, sum(minutes.requests) AS request_part
    FROM requests_minute AS minutes
    WHERE bucket >= toDateTime({first_minute:UInt32}, 'UTC')
        AND bucket < toDateTime({end_minute:UInt32}, 'UTC')
        AND ({first_minute:UInt32} < {first_hour:UInt32} OR {end_minute:UInt32} > {end_hour:UInt32})
        AND (bucket < toDateTime({first_hour:UInt32}, 'UTC') OR bucket >= toDateTime({end_hour:UInt32}, 'UTC'))
        AND {{of_whom}}
        AND ({outcome:Nullable(String)} IS NULL OR outcome = {outcome:Nullable(String)})
    GROUP BY at, outcome_label
    UNION ALL
    SELECT toUnixTimestamp(toDateTime(started_at, 'UTC')) AS at, outcome AS outcome_label, count() AS request_part
    FROM requests
    WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({start:Float64} < {first_minute:UInt32} OR {end:Float64} > {end_minute:UInt32})
        AND (started_at < toDateTime64({first_minute:UInt32}, 9, 'UTC')
            OR started_at >= toDateTime64({end_minute:UInt32}, 9, 'UTC'))
        AND {{of_whom}}
        AND ({outcome:Nullable(String)} IS NULL OR outcome = {outcome:Nullable(String)})
    GROUP BY at, outcome_label
)
GROUP BY step_start, outcome_label
