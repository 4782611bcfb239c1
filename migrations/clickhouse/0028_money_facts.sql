-- Why: a bill names what had no price, the service tier that set the price, and the cost that no budget was charged.
-- Undo: ALTER TABLE requests DROP COLUMN unpriced_leaves, DROP COLUMN service_tier, DROP COLUMN overdraft_usd.
-- Locks: nothing waits; columns are added in the metadata alone, and rows from before read as [], '' and NULL.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS unpriced_leaves Array(LowCardinality(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS service_tier LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS overdraft_usd Nullable(Decimal(18, 12)) CODEC(ZSTD(1));
