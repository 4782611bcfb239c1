-- Requests, tokens and cost over time by one dimension, in one query. The groups of highest cost have their own rows,
-- the others are summed as one (is_rest = 1). Booked corrections are included in the cost of their usage. {rollup} has
-- the {dimension}: tenant, team, project or model.
SELECT
    step_start,
    is_rest,
    if(is_rest, '', name) AS label,
    sum(request_part) AS request_count,
    sum(input_part) AS input_sum,
    sum(output_part) AS output_sum,
    sum(cost_part) AS cost_sum,
    sum(no_price_part) AS unpriced_count,
    sum(usage_unknown_part) AS unknown_usage_count,
    sum(failed_part) AS failed_count,
    sum(untold_part) AS untold_count,
    sum(unpriced_input_part) AS unpriced_input_sum,
    sum(unpriced_output_part) AS unpriced_output_sum
FROM
(
    SELECT
        *,
        dense_rank() OVER (ORDER BY group_cost DESC, group_requests DESC, name) > {leader_limit:UInt32} AS is_rest
    FROM
    (
        SELECT
            *,
            sum(cost_part) OVER (PARTITION BY name) AS group_cost,
            sum(request_part) OVER (PARTITION BY name) AS group_requests
        FROM
        (
            SELECT
                {dimension:Identifier} AS name,
                intDiv(toUnixTimestamp(toDateTime(bucket, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
                    + {origin:UInt32} AS step_start,
                sum(requests) AS request_part,
                sum(input_tokens) AS input_part,
                sum(output_tokens) AS output_part,
                sum(cost_usd) AS cost_part,
                toInt64(sum(no_price_requests)) AS no_price_part,
                sum(usage_unknown_requests) AS usage_unknown_part,
                sum(failed_requests) AS failed_part,
                sum(untold_requests) AS untold_part,
                toInt64(sum(unpriced_input_tokens)) AS unpriced_input_part,
                toInt64(sum(unpriced_output_tokens)) AS unpriced_output_part
            FROM {rollup:Identifier}
            WHERE toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
                AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
                AND {{of_whom}}
            GROUP BY name, step_start
            UNION ALL
            SELECT
                {dimension:Identifier} AS name,
                intDiv(toUnixTimestamp(used_at) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
                    + {origin:UInt32} AS step_start,
                0,
                0,
                0,
                sum(cost_usd),
                sum(no_price_requests),
                0,
                0,
                0,
                sum(unpriced_input_tokens),
                sum(unpriced_output_tokens)
            FROM book_entries FINAL -- corrections, at the time of the usage
            WHERE used_at >= toDateTime({start:UInt32}, 'UTC')
                AND used_at < toDateTime({end:UInt32}, 'UTC')
                AND {{of_whom}}
            GROUP BY name, step_start
        )
    )
)
GROUP BY step_start, is_rest, label
ORDER BY step_start, is_rest, label
