-- Why: a machine is paid from its first engine on, and an hour's sums did not say when in the hour that was.
-- Undo: ALTER TABLE gpu_hours DROP COLUMN first_ns.
-- Locks: nothing waits; the column is added in the metadata alone. Hours from before read 0: paid from their beginning.

ALTER TABLE gpu_hours ADD COLUMN IF NOT EXISTS first_ns SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1));
