-- Percentiles within 1 % of each value (DDSketch) of one team or project, computed from rows, as rollups have no
-- sketches by team. Copies to a rollout's candidate (`_platform`) are included only if that tenant is asked for.
SELECT
    grouping(tenant) AS is_total,
    tenant,
    model,
    count(ttft_ns) AS ttft_samples,
    quantilesDDIf(0.01, 0.5, 0.95, 0.99)(assumeNotNull(ttft_ns), isNotNull(ttft_ns)) AS ttft_levels,
    sum(length(gaps)) AS gap_samples,
    quantilesDDArray(0.01, 0.5, 0.95, 0.99)(gaps) AS gap_levels
FROM requests
WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND (tenant != '_platform' OR {tenant:Nullable(String)} = '_platform')
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY GROUPING SETS ((), (tenant, model))
