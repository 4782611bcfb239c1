-- Why: for how long a request waited for its model to wake or to be loaded.
-- Undo: ALTER TABLE requests DROP COLUMN cold_start_ns.
-- Locks: nothing waits; a column is added in the metadata alone, and rows from before read as NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS cold_start_ns Nullable(UInt64) CODEC(T64, ZSTD(1));
