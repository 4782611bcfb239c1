-- Why: what admission did with a request: its class, its wait in the gateway's queue, and what was charged when.
-- Undo: ALTER TABLE requests DROP COLUMN priority, wait_ns, charge_offsets_ns, charge_tokens and overdraft_tokens.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as empty or NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS priority LowCardinality(String),
    ADD COLUMN IF NOT EXISTS wait_ns Nullable(UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS charge_offsets_ns Array(UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS charge_tokens Array(UInt32) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS overdraft_tokens Nullable(UInt32) CODEC(T64, ZSTD(1));
