-- The result of percentiles_sketch within one tenant: totals (is_total = 1) are merged from its own states. Groups only
-- of {shown} (tenant/model), if not empty.
SELECT
    grouping(tenant) AS is_total,
    tenant,
    model,
    sum(ttft_count) AS ttft_samples,
    quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_state) AS ttft_kept,
    [ttft_kept[1], ttft_kept[3], ttft_kept[4]] AS ttft_levels,
    sum(gap_count) AS gap_samples,
    quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(gap_state) AS gap_kept,
    [gap_kept[1], gap_kept[3], gap_kept[4]] AS gap_levels
FROM
(
    SELECT tenant, model, ttft_count, ttft_state, gap_count, gap_state
    FROM latency_day
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({first_day:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end_day:UInt32}, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    UNION ALL
    SELECT
        tenant,
        model,
        count(ttft_ns) AS ttft_count,
        quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(ttft_ns), isNotNull(ttft_ns)) AS ttft_state,
        sum(length(gaps)) AS gap_count,
        quantilesDDStateArray(0.01, 0.5, 0.9, 0.95, 0.99)(gaps) AS gap_state
    FROM requests
    WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({start:UInt32} < {first_day:UInt32} OR {end:UInt32} > {end_day:UInt32}) -- else nothing is read
        AND NOT (started_at >= toDateTime64({first_day:UInt32}, 9, 'UTC')
            AND started_at < toDateTime64({end_day:UInt32}, 9, 'UTC'))
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    GROUP BY tenant, model
)
GROUP BY GROUPING SETS ((), (tenant, model))
HAVING is_total = 1 OR empty({shown:Array(String)}) OR concat(tenant, '/', model) IN {shown:Array(String)}
