-- All steps in a range of the engines that one request ran on: the request's own rows are marked, other requests are
-- only counted. A request with several answers has a row for each and counts once; rows without a request count
-- separately.
WITH toUUID('00000000-0000-0000-0000-000000000000') AS nobody
SELECT
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    busy_ns,
    gap_ns,
    toString(kind) AS kind_label,
    toString(gap_cause) AS cause_label,
    has(request_ids, {request_id:UUID}) AS has_it,
    arrayElement(arrayResize(recompute, length(request_ids), 0), indexOf(request_ids, {request_id:UUID})) AS own_recompute,
    arraySum(arrayFilter((ns, id) -> id = {request_id:UUID}, gpu_ns, arrayResize(request_ids, length(gpu_ns)))) AS own_sum,
    arraySum(arrayFilter(
        (ns, id, phase) -> id != {request_id:UUID} AND phase != 1,
        gpu_ns, arrayResize(request_ids, length(gpu_ns)), arrayResize(phases, length(gpu_ns), 1)
    )) AS prefill_sum,
    arrayUniq(arrayFilter(id -> id != {request_id:UUID} AND id != nobody, request_ids))
        + countEqual(request_ids, nobody) AS others,
    arrayUniq(arrayFilter(
        (id, phase) -> id != {request_id:UUID} AND id != nobody AND phase != 1,
        request_ids, arrayResize(phases, length(request_ids), 1)
    )) + arrayCount(
        (id, phase) -> id = nobody AND phase != 1,
        request_ids, arrayResize(phases, length(request_ids), 1)
    ) AS others_prefilling
FROM engine_steps
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND engine IN
    (
        SELECT engine
        FROM engine_steps
        WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
            AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
            AND has(request_ids, {request_id:UUID})
    )
ORDER BY started_at, sequence
