-- Why: several collectors in front of one store put several batches into one insert; whose a batch is must be known to all of them.
-- Undo: stop the collectors, DROP TABLE batch_claims.
-- Locks: nothing; it only makes a table that did not exist.

-- One row per batch and collector that has it in its spool, written before the insert. The first that was committed
-- is the batch's owner, and the others leave it out. Numbers of blocks are given under the lock that commits them, so
-- their order is that of the commits, for a plain MergeTree alone; they are kept through merges. The collector's own
-- time of receipt tells its claim from all others', also after a restart.
CREATE TABLE IF NOT EXISTS batch_claims
(
    batch_id String CODEC(ZSTD(1)),
    received_at_ns UInt64 CODEC(T64, ZSTD(1)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingested_at)
ORDER BY batch_id
TTL toDateTime(ingested_at) + INTERVAL 7 DAY
SETTINGS enable_block_number_column = 1, ttl_only_drop_parts = 1;
