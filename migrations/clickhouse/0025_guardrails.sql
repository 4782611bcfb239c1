-- Why: how long guardrails took of a request, and for how long they held pieces of its answer back.
-- Undo: ALTER TABLE requests DROP COLUMN guard_ns, DROP COLUMN guard_held_ns.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS guard_ns Nullable(UInt64) CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS guard_held_ns Nullable(UInt64) CODEC(T64, ZSTD(1));
