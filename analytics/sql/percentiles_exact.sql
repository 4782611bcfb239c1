-- Exact percentiles of time to first token (ns) and of every gap between tokens (units of 10 us) by tenant and model,
-- and in total (is_total = 1): the measured value at rank floor(level * count). Groups only of {shown} (tenant/model),
-- if not empty. {source} is requests, where a tenant's rows are adjacent, or requests_recent, where an hour's rows are.
-- Copies to a rollout's candidate (`_platform`) are included only if that tenant is asked for.
SELECT
    grouping(tenant) AS is_total,
    tenant,
    model,
    count(ttft_ns) AS ttft_samples,
    quantilesExact(0.5, 0.95, 0.99)(ttft_ns) AS ttft_levels,
    sum(length(gaps)) AS gap_samples,
    quantilesExactArray(0.5, 0.95, 0.99)(gaps) AS gap_levels
FROM {source:Identifier}
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY GROUPING SETS ((), (tenant, model))
HAVING is_total = 1 OR empty({shown:Array(String)}) OR concat(tenant, '/', model) IN {shown:Array(String)}
