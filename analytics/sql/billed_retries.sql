-- Failed attempts that a provider may bill, followed by a successful one: their tokens if known, else those of the
-- request, whose prompt is the same.
SELECT
    toString(toDate(tries.started_at, 'UTC')) AS day_label,
    tries.replica AS target_label,
    tries.model AS model_label,
    answered.model_version AS version_label,
    count() AS try_count,
    {{retried_leaf_sums}} AS leaf_sums
FROM
(
    SELECT *
    FROM attempts
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND provider IN {providers:Array(String)}
        AND outcome != 'ok'
        AND cost_basis != 'free'
        AND number > 0
) AS tries
INNER JOIN
(
    SELECT *
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32} - 86400, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND requests.attempts > 1
) AS answered USING (request_id)
WHERE tries.number < answered.attempts
GROUP BY day_label, target_label, model_label, version_label
