-- Why: sessions of agents are shown by their tools, loops and broken prompt caches, and a provider's own usage is kept.
-- Undo: ALTER TABLE requests DROP COLUMN tools, tool_marks, prompt_marks and provider_usage.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as empty.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS tools Array(LowCardinality(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS tool_marks Array(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS prompt_marks Array(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS provider_usage String CODEC(ZSTD(1));
