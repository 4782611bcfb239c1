-- Why: for how long a tenant's rows of a table are kept, where that is less than the table's own time.
-- Undo: DROP TABLE retention. Rows already deleted for it do not come back.
-- Locks: nothing; it only makes a table that did not exist.

-- One rule per tenant and table, the latest holds; 0 seconds is a rule that was taken away. `deleted_before` says up to
-- where rows have been deleted for it, which a rollup that outlives them must not be held against.
CREATE TABLE IF NOT EXISTS retention
(
    tenant LowCardinality(String),
    table_name LowCardinality(String),
    keep_seconds UInt64,
    deleted_before DateTime('UTC'),
    changed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = ReplacingMergeTree(changed_at)
ORDER BY (tenant, table_name)
SETTINGS non_replicated_deduplication_window = 10000;
