-- Why: which arm of which rollout a request was part of, so that both can be compared.
-- Undo: ALTER TABLE requests DROP COLUMN arm, DROP COLUMN rollout.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as ''.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS arm LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS rollout LowCardinality(String) CODEC(ZSTD(1));
