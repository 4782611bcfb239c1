-- Why: images, sound, speech and moderations are sold by units that are no tokens.
-- Undo: ALTER TABLE requests, and attempts, DROP COLUMN of the four below, and MODIFY COLUMN price_state as in 0030.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS units_images Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_milliseconds Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_characters Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_requests Nullable(UInt32) CODEC(ZSTD(1));

ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS units_images Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_milliseconds Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_characters Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS units_requests Nullable(UInt32) CODEC(ZSTD(1));

-- As in 0030; what is counted in units is known without tokens.
ALTER TABLE requests
    MODIFY COLUMN IF EXISTS price_state LowCardinality(String) ALIAS multiIf(
        outcome = 'rejected', 'rejected',
        cost_basis = 'free', 'failed',
        isNotNull(cost_usd) AND notEmpty(unpriced_leaves), 'partly_unpriced',
        isNotNull(cost_usd), 'priced',
        cost_basis = 'unknown_usage', 'unknown_usage',
        isNotNull(coalesce(units_images, units_milliseconds, units_characters, units_requests)), 'unpriced',
        outcome = 'error'
        AND isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image
        )), 'failed',
        isNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h
        ))
        OR (
            operation NOT IN ('embeddings', 'rerank', 'score')
            AND isNull(coalesce(
                tokens_output_text, tokens_output_reasoning, tokens_output_audio, tokens_output_image
            ))
        ), 'unknown_usage',
        'unpriced'
    );

ALTER TABLE attempts
    MODIFY COLUMN IF EXISTS price_state LowCardinality(String) ALIAS multiIf(
        outcome = 'rejected', 'rejected',
        cost_basis = 'free', 'failed',
        isNotNull(cost_usd), 'priced',
        cost_basis = 'unknown_usage', 'unknown_usage',
        isNotNull(coalesce(
            tokens_input_text, tokens_input_audio, tokens_input_image, tokens_cache_read_text,
            tokens_cache_read_audio, tokens_cache_write_5m, tokens_cache_write_1h, tokens_output_text,
            tokens_output_reasoning, tokens_output_audio, tokens_output_image,
            units_images, units_milliseconds, units_characters, units_requests
        )), 'unpriced',
        if(outcome = 'error', 'failed', 'unknown_usage')
    );
