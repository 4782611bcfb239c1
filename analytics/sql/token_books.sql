-- Output tokens by replica and hour: what engines say they made, and what is on bills or on a line of its own.
-- Only requests whose engine told; the two sums are to be equal.
SELECT
    replica,
    toStartOfHour(started_at) AS hour,
    sum(ifNull(source.engine_output_tokens, 0)) AS made,
    sum(
          {{output_sum}}
        + ifNull(source.overrun_tokens, 0)
        + ifNull(source.recompute_tokens, 0)
        + ifNull(source.wasted_tokens, 0)
    ) AS accounted
FROM requests AS source
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND source.engine_output_tokens IS NOT NULL
GROUP BY replica, hour
HAVING made != accounted
ORDER BY replica, hour
