-- Times of an engine step, with GPU time classified as useful, recomputed (paid by the platform) and wasted (for
-- requests whose client had disconnected), as in algorithms/gpu_time/attribution.py.
engine,
model,
replica,
toString(kind) AS kind_label,
toString(gap_cause) AS cause_label,
arrayMap(device -> toString(device), devices) AS device_labels,
toUnixTimestamp64Nano(started_at) AS started_at_ns,
busy_ns,
gap_ns,
sequence,
arraySum(arrayMap(
    (ns, gone) -> if(gone, ns, 0), gpu_ns, arrayResize(aborted, length(gpu_ns), false)
)) AS wasted_sum,
arraySum(arrayMap(
    (ns, gone, again, planned) -> if(gone OR planned = 0, 0, intDiv(ns * least(again, planned), planned)),
    gpu_ns,
    arrayResize(aborted, length(gpu_ns), false),
    arrayResize(recompute, length(gpu_ns), 0),
    arrayResize(scheduled, length(gpu_ns), 0)
)) AS recompute_sum,
arraySum(gpu_ns) AS charged_sum
