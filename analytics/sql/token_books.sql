-- Output tokens by replica and hour: as reported by engines, and as accounted for in the requests' records (output,
-- overrun, recomputed and wasted tokens), which must be equal. Only of requests that an engine reported.
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
