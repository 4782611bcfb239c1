-- Why: a record says by how many reasoning tokens a model went beyond the cap of its key.
-- Undo: ALTER TABLE requests DROP COLUMN thinking_over_tokens.
-- Locks: nothing waits; a column is added in the metadata alone, and rows from before read as NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS thinking_over_tokens Nullable(UInt32) CODEC(ZSTD(1));
