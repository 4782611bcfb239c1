-- Why: GPU samples are a record of their own now, with the columns that are measured; the table from before was never written to.
-- Undo: DROP TABLE gpu_samples, and make it again as in 0002.
-- Locks: nothing waits; the table that goes is empty.

DROP TABLE IF EXISTS gpu_samples;

-- One row per GPU and look. NULL is a sensor that is absent, which is not a sensor that reads 0.
CREATE TABLE IF NOT EXISTS gpu_samples
(
    host LowCardinality(String), -- the engine host, unique for each start
    sequence UInt64 CODEC(DoubleDelta, ZSTD(1)), -- within the host; a hole is a loss
    at DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    device LowCardinality(String), -- the GPU's UUID, or its slice's
    device_model LowCardinality(String),
    device_index UInt16,
    parent LowCardinality(String), -- of a slice: the whole GPU
    vendor LowCardinality(String),
    replica LowCardinality(String),
    gateway LowCardinality(String),
    memory_total_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)),
    memory_used_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)),
    power_watts Nullable(Float64) CODEC(ZSTD(1)),
    energy_joules Nullable(Float64) CODEC(ZSTD(1)), -- counter since the driver's start
    temperature_celsius Nullable(Float64) CODEC(ZSTD(1)),
    memory_temperature_celsius Nullable(Float64) CODEC(ZSTD(1)),
    sm_clock_mhz Nullable(UInt32) CODEC(T64, ZSTD(1)),
    memory_clock_mhz Nullable(UInt32) CODEC(T64, ZSTD(1)),
    throttle_bits Nullable(UInt32) CODEC(T64, ZSTD(1)), -- NVML's reasons, without idleness
    ecc_corrected Nullable(UInt64) CODEC(T64, ZSTD(1)), -- over the device's life
    ecc_uncorrected Nullable(UInt64) CODEC(T64, ZSTD(1)),
    kernel_activity Nullable(Float64) CODEC(ZSTD(1)), -- 0 to 1, since the look before
    sm_activity Nullable(Float64) CODEC(ZSTD(1)),
    sm_occupancy Nullable(Float64) CODEC(ZSTD(1)),
    tensor_activity Nullable(Float64) CODEC(ZSTD(1)),
    dram_activity Nullable(Float64) CODEC(ZSTD(1)),
    other_processes Nullable(UInt32) CODEC(T64, ZSTD(1)),
    is_shared Nullable(Bool),
    xid Nullable(UInt32) CODEC(T64, ZSTD(1)), -- the last fault since the look before
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (device, at)
TTL greatest(toDateTime(at), toDateTime(ingested_at)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
