-- Exact percentiles of time to first token (ns) and of every gap between tokens (10 us units) by tenant and model,
-- and of all together (is_total = 1): each value is one that was measured, the one at rank floor(level * count).
-- Of groups those in {shown} (tenant/model) alone, where any are named.
-- {source} is requests, where a tenant's rows lie together, or requests_recent, where an hour's do.
-- Copies to a rollout's candidate (`_platform`), whose answers nobody saw, are in it only where they are asked for.
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
