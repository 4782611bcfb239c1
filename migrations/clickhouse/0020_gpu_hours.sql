-- Why: single engine steps are kept for 72 hours, and what GPUs cost is asked of months.
-- Undo: DROP TABLE gpu_tenant_hours; DROP TABLE gpu_hours.
-- Locks: nothing; it only makes tables that did not exist.

-- The ledger's lines (contracts/ledger.py) of each engine's hour on each of its GPUs, written once, when the hour is
-- over, by the analytics process. `no_engine_ns` is the rest of the hour. What is unexplained is the wall clock less
-- all lines.
CREATE TABLE IF NOT EXISTS gpu_hours
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    device LowCardinality(String), -- the GPU's UUID, or the engine's name where it said none
    engine LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    device_model LowCardinality(String),
    is_gpu Bool,
    wall_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    attributed_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    recompute_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wasted_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    unattributed_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    host_gap_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    idle_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    load_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    warmup_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    sleep_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    dead_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    no_engine_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (bucket, device, engine, model, replica, device_model, is_gpu)
SETTINGS non_replicated_deduplication_window = 10000;

-- Whom each engine worked for in an hour: time that was useful, and time on requests whose client had left.
CREATE TABLE IF NOT EXISTS gpu_tenant_hours
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    engine LowCardinality(String),
    useful_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    wasted_ns SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYear(bucket)
ORDER BY (tenant, bucket, engine)
SETTINGS non_replicated_deduplication_window = 10000;
