-- Why: the Routing page counted who answered from single requests: a second for a month of ten million of them.
-- Undo: ALTER TABLE requests DROP PROJECTION answered_hour.
-- Locks: nothing; requests that came before are summed up in the background, and until then counted one by one.

-- Who answered, by hour: sums that lie in each part of `requests` itself, so that they are its rows' after every merge,
-- deletion and copy. The engine answers from them what asks in these very words (routing_answered_hours.sql), of all
-- tenants alone: a tenant's rows lie together, and hours of each would be eight bytes a request.
-- 0.05 bytes a request of twelve models on four targets each.
ALTER TABLE requests
    ADD PROJECTION IF NOT EXISTS answered_hour
    (
        SELECT
            toStartOfHour(started_at),
            pool,
            replica,
            model,
            route,
            countIf(outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')),
            countIf(outcome = 'error' AND cache NOT IN ('hit', 'semantic_hit')),
            countIf(attempts > 1 AND outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')),
            sumIf(
                ifNull(tokens_input_text, 0)
                + ifNull(tokens_input_audio, 0)
                + ifNull(tokens_input_image, 0)
                + ifNull(tokens_cache_read_text, 0)
                + ifNull(tokens_cache_read_audio, 0)
                + ifNull(tokens_cache_write_5m, 0)
                + ifNull(tokens_cache_write_1h, 0),
                outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')
            ),
            sumIf(
                ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0),
                outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')
            ),
            countIf(isNotNull(ttft_ns) AND outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit')),
            sumIf(ifNull(ttft_ns, 0), outcome != 'rejected' AND cache NOT IN ('hit', 'semantic_hit'))
        GROUP BY toStartOfHour(started_at), pool, replica, model, route
    );

ALTER TABLE requests
    MATERIALIZE PROJECTION IF EXISTS answered_hour;
