-- Percentiles over all tenants within 1 % of each value (DDSketch): whole days from the daily rollup's states, the
-- hours outside them from rows, so the result covers the same range as the exact one. Totals (is_total = 1) are read
-- from their own rollup, with a state per model instead of per tenant and model. A state can be merged only at its own
-- levels (0.5, 0.9, 0.95, 0.99), of which three are used. Groups only of {shown} (tenant/model) and {shown_tenants}, if
-- not empty, as states and gaps are slow to read. first_day and end_day are the bounds of whole days (Unix s), equal if
-- there are none. {source} is requests_recent, with the rows of 72 hours sorted by time, or requests. Copies to a
-- rollout's candidate (`_platform`) are excluded.
SELECT
    is_total,
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
    SELECT 0 AS is_total, tenant, model, ttft_count, ttft_state, gap_count, gap_state
    FROM latency_day
    WHERE toDateTime(bucket, 'UTC') >= toDateTime({first_day:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end_day:UInt32}, 'UTC')
        AND (empty({shown:Array(String)})
            OR (tenant IN {shown_tenants:Array(String)} AND concat(tenant, '/', model) IN {shown:Array(String)}))
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    UNION ALL
    SELECT 1 AS is_total, '' AS tenant, '' AS model, ttft_count, ttft_state, gap_count, gap_state
    FROM model_latency_day
    WHERE {tenant:Nullable(String)} IS NULL
        AND toDateTime(bucket, 'UTC') >= toDateTime({first_day:UInt32}, 'UTC')
        AND toDateTime(bucket, 'UTC') < toDateTime({end_day:UInt32}, 'UTC')
        AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    UNION ALL
    SELECT
        grouping(tenant) AS is_total,
        tenant,
        model,
        sum(ttft_part) AS ttft_count,
        quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_of_group) AS ttft_state,
        sum(gap_part) AS gap_count,
        quantilesDDMergeState(0.01, 0.5, 0.9, 0.95, 0.99)(gap_of_group) AS gap_state
    FROM
    (
        SELECT
            tenant,
            model,
            count(ttft_ns) AS ttft_part,
            quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(ttft_ns), isNotNull(ttft_ns)) AS ttft_of_group,
            sum(length(gaps)) AS gap_part,
            quantilesDDStateArray(0.01, 0.5, 0.9, 0.95, 0.99)(gaps) AS gap_of_group
        FROM {source:Identifier}
        WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
            AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
            AND ({start:UInt32} < {first_day:UInt32} OR {end:UInt32} > {end_day:UInt32}) -- else nothing is read
            AND NOT (started_at >= toDateTime64({first_day:UInt32}, 9, 'UTC')
                AND started_at < toDateTime64({end_day:UInt32}, 9, 'UTC'))
            AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
            AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
            AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
        GROUP BY tenant, model
    )
    GROUP BY GROUPING SETS ((), (tenant, model))
)
GROUP BY is_total, tenant, model
