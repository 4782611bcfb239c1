-- Percentiles of time to first token (ns) and inter-token latency (units of 10 us) by model over all tenants, within 1
-- % of each value (DDSketch), for whole days. A state can be merged only at its own levels, which are all that are
-- stored.
SELECT
    model,
    sum(ttft_count) AS ttft_samples,
    quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_state) AS ttft_kept,
    [ttft_kept[1], ttft_kept[3], ttft_kept[4]] AS ttft_levels,
    sum(gap_count) AS gap_samples,
    quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(gap_state) AS gap_kept,
    [gap_kept[1], gap_kept[3], gap_kept[4]] AS gap_levels
FROM model_latency_day
WHERE {tenant:Nullable(String)} IS NULL
    AND toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
GROUP BY model
ORDER BY model
