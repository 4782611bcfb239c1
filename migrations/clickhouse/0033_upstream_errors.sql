-- Why: a record kept the gateway's own status and error code alone; what the model's server answered was lost.
-- Undo: ALTER TABLE requests, and attempts, DROP COLUMN upstream_status, upstream_error and upstream_message.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as NULL or empty.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS upstream_status Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS upstream_error LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS upstream_message String CODEC(ZSTD(1));

ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS upstream_status Nullable(UInt32) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS upstream_error LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS upstream_message String CODEC(ZSTD(1));
