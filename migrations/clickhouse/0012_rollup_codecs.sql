-- Why: sums in the rollups were kept with the store's default compression, which is twice what they need.
-- Undo: ALTER the same columns back to CODEC(Default).
-- Locks: nothing waits; only the metadata changes, and a part is written anew when it is next merged.

ALTER TABLE requests_minute
    MODIFY COLUMN IF EXISTS requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cached_input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS output_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unpriced_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unknown_usage_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS streamed_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gpu_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gap_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS duration_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cost_usd CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS charged_usd CODEC(ZSTD(1));

ALTER TABLE requests_hour
    MODIFY COLUMN IF EXISTS requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cached_input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS output_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unpriced_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unknown_usage_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS streamed_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gpu_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gap_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS duration_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cost_usd CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS charged_usd CODEC(ZSTD(1));

ALTER TABLE requests_day
    MODIFY COLUMN IF EXISTS requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cached_input_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS output_tokens CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unpriced_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS unknown_usage_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS streamed_requests CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gpu_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS ttft_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS gap_count CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS duration_sum_ns CODEC(T64, ZSTD(1)),
    MODIFY COLUMN IF EXISTS cost_usd CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS charged_usd CODEC(ZSTD(1));
