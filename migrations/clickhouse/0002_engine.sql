-- Why: what the GPUs did: engine steps and KV events as they came, their minutes for good, and device samples.
-- Undo: DROP the views first, then engine_steps, kv_events, engine_minutes, engine_tenant_minutes, gpu_samples.
-- Locks: nothing; it only makes tables that did not exist.

-- 72 hours of single steps; the minutes below stay.
CREATE TABLE IF NOT EXISTS engine_steps
(
    engine LowCardinality(String),
    sequence UInt64 CODEC(DoubleDelta, ZSTD(1)),
    started_at DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    busy_ns UInt64 CODEC(T64, ZSTD(1)),
    gap_ns UInt64 CODEC(T64, ZSTD(1)),
    kind LowCardinality(String),
    gap_cause LowCardinality(String),
    forward_ns Nullable(UInt64) CODEC(T64, ZSTD(1)),
    rank_skew_ns Nullable(UInt64) CODEC(T64, ZSTD(1)),
    model LowCardinality(String),
    replica LowCardinality(String),
    gateway LowCardinality(String),
    devices Array(LowCardinality(String)) CODEC(ZSTD(1)),
    ranks UInt16 CODEC(T64, ZSTD(1)),
    running Nullable(UInt32) CODEC(T64, ZSTD(1)),
    waiting Nullable(UInt32) CODEC(T64, ZSTD(1)),
    kv_blocks_used Nullable(UInt32) CODEC(T64, ZSTD(1)),
    kv_blocks_total Nullable(UInt32) CODEC(T64, ZSTD(1)),
    method LowCardinality(String),
    fit_version LowCardinality(String),
    confidence Nullable(Float64) CODEC(ZSTD(1)),
    request_ids Array(UUID) CODEC(ZSTD(1)),
    tenants Array(LowCardinality(String)) CODEC(ZSTD(1)),
    scheduled Array(UInt32) CODEC(T64, ZSTD(1)),
    context Array(UInt32) CODEC(T64, ZSTD(1)),
    cached Array(UInt32) CODEC(T64, ZSTD(1)),
    phases Array(UInt8) CODEC(ZSTD(1)),
    recompute Array(UInt32) CODEC(T64, ZSTD(1)),
    drafted Array(UInt32) CODEC(T64, ZSTD(1)),
    accepted Array(UInt32) CODEC(T64, ZSTD(1)),
    aborted Array(Bool) CODEC(ZSTD(1)),
    gpu_ns Array(UInt64) CODEC(T64, ZSTD(1)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (engine, started_at, sequence)
TTL greatest(toDateTime(started_at), toDateTime(ingested_at)) + INTERVAL 72 HOUR
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS kv_events
(
    engine LowCardinality(String),
    sequence UInt64 CODEC(DoubleDelta, ZSTD(1)),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    event LowCardinality(String),
    block_hashes Array(UInt64) CODEC(ZSTD(1)),
    parent_hash Nullable(UInt64) CODEC(ZSTD(1)),
    block_size UInt32 CODEC(T64, ZSTD(1)),
    medium LowCardinality(String),
    cache_group UInt16 CODEC(T64, ZSTD(1)),
    adapter LowCardinality(String),
    tenant LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (engine, at, sequence)
TTL greatest(toDateTime(at), toDateTime(ingested_at)) + INTERVAL 24 HOUR
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

-- One row per engine, minute, kind of step and cause of gap. A hole in the sequence is a loss:
-- steps < last_sequence - first_sequence + 1, summed over kinds and causes, tells it for any range.
CREATE TABLE IF NOT EXISTS engine_minutes
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    engine LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    kind LowCardinality(String),
    gap_cause LowCardinality(String),
    steps SimpleAggregateFunction(sum, UInt64),
    busy_ns SimpleAggregateFunction(sum, UInt64),
    gap_ns SimpleAggregateFunction(sum, UInt64),
    forward_ns SimpleAggregateFunction(sum, UInt64),
    rank_skew_ns SimpleAggregateFunction(sum, UInt64),
    device_busy_ns SimpleAggregateFunction(sum, UInt64),
    device_gap_ns SimpleAggregateFunction(sum, UInt64),
    attributed_ns SimpleAggregateFunction(sum, UInt64),
    batch_slots SimpleAggregateFunction(sum, UInt64),
    scheduled_tokens SimpleAggregateFunction(sum, UInt64),
    cached_tokens SimpleAggregateFunction(sum, UInt64),
    recompute_tokens SimpleAggregateFunction(sum, UInt64),
    drafted_tokens SimpleAggregateFunction(sum, UInt64),
    accepted_tokens SimpleAggregateFunction(sum, UInt64),
    waiting_sum SimpleAggregateFunction(sum, UInt64),
    waiting_max SimpleAggregateFunction(max, UInt32),
    running_max SimpleAggregateFunction(max, UInt32),
    kv_blocks_used_sum SimpleAggregateFunction(sum, UInt64),
    kv_blocks_used_max SimpleAggregateFunction(max, UInt32),
    kv_blocks_total_max SimpleAggregateFunction(max, UInt32),
    first_sequence SimpleAggregateFunction(min, UInt64),
    last_sequence SimpleAggregateFunction(max, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (engine, bucket, kind, gap_cause, model, replica)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_minutes_from_steps TO engine_minutes AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS bucket,
    engine,
    model,
    replica,
    kind,
    gap_cause,
    count() AS steps,
    sum(engine_steps.busy_ns) AS busy_ns,
    sum(engine_steps.gap_ns) AS gap_ns,
    sum(ifNull(engine_steps.forward_ns, 0)) AS forward_ns,
    sum(ifNull(engine_steps.rank_skew_ns, 0)) AS rank_skew_ns,
    sum(engine_steps.busy_ns * engine_steps.ranks) AS device_busy_ns,
    sum(engine_steps.gap_ns * engine_steps.ranks) AS device_gap_ns,
    sum(arraySum(gpu_ns)) AS attributed_ns,
    sum(length(request_ids)) AS batch_slots,
    sum(arraySum(scheduled)) AS scheduled_tokens,
    sum(arraySum(cached)) AS cached_tokens,
    sum(arraySum(recompute)) AS recompute_tokens,
    sum(arraySum(drafted)) AS drafted_tokens,
    sum(arraySum(accepted)) AS accepted_tokens,
    sum(ifNull(waiting, 0)) AS waiting_sum,
    max(ifNull(waiting, 0)) AS waiting_max,
    max(ifNull(running, 0)) AS running_max,
    sum(ifNull(kv_blocks_used, 0)) AS kv_blocks_used_sum,
    max(ifNull(kv_blocks_used, 0)) AS kv_blocks_used_max,
    max(ifNull(kv_blocks_total, 0)) AS kv_blocks_total_max,
    min(sequence) AS first_sequence,
    max(sequence) AS last_sequence
FROM engine_steps
GROUP BY bucket, engine, model, replica, kind, gap_cause;

-- Who the GPU worked for, by minute and phase (0 prefill, 1 decode, 2 encode).
CREATE TABLE IF NOT EXISTS engine_tenant_minutes
(
    bucket DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    tenant LowCardinality(String),
    engine LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    phase UInt8,
    method LowCardinality(String),
    gpu_ns SimpleAggregateFunction(sum, UInt64),
    scheduled_tokens SimpleAggregateFunction(sum, UInt64),
    batch_slots SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (tenant, bucket, engine, model, replica, phase, method)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_tenant_minutes_from_steps TO engine_tenant_minutes AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS bucket,
    slot.1 AS tenant,
    engine,
    model,
    replica,
    slot.2 AS phase,
    method,
    sum(slot.3) AS gpu_ns,
    sum(slot.4) AS scheduled_tokens,
    count() AS batch_slots
FROM
(
    -- The arrays run in parallel, but only `tenants` is always there: the others are padded to its length.
    SELECT
        started_at,
        engine,
        model,
        replica,
        method,
        arrayJoin(arrayZip(
            tenants,
            arrayResize(phases, length(tenants), 1),
            arrayResize(engine_steps.gpu_ns, length(tenants), 0),
            arrayResize(scheduled, length(tenants), 0)
        )) AS slot
    FROM engine_steps
)
GROUP BY bucket, tenant, engine, model, replica, phase, method;

-- One row per device and sample. `None` is stored as NULL: a sensor that is absent is not a sensor that reads 0.
CREATE TABLE IF NOT EXISTS gpu_samples
(
    device LowCardinality(String), -- the GPU's UUID
    at DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    host LowCardinality(String),
    gateway LowCardinality(String),
    engine LowCardinality(String),
    device_index UInt16,
    device_model LowCardinality(String),
    source LowCardinality(String), -- 'nvml', 'dcgm'
    utilization Nullable(Float32) CODEC(ZSTD(1)), -- 0 to 1
    sm_active Nullable(Float32) CODEC(ZSTD(1)),
    tensor_active Nullable(Float32) CODEC(ZSTD(1)),
    dram_active Nullable(Float32) CODEC(ZSTD(1)),
    memory_used_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)),
    memory_total_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)),
    power_watts Nullable(Float32) CODEC(ZSTD(1)),
    energy_millijoules Nullable(UInt64) CODEC(T64, ZSTD(1)), -- counter since boot
    temperature_celsius Nullable(Float32) CODEC(ZSTD(1)),
    memory_temperature_celsius Nullable(Float32) CODEC(ZSTD(1)),
    sm_clock_mhz Nullable(UInt32) CODEC(T64, ZSTD(1)),
    memory_clock_mhz Nullable(UInt32) CODEC(T64, ZSTD(1)),
    pcie_receive_bytes_per_second Nullable(UInt64) CODEC(T64, ZSTD(1)),
    pcie_transmit_bytes_per_second Nullable(UInt64) CODEC(T64, ZSTD(1)),
    nvlink_bytes_per_second Nullable(UInt64) CODEC(T64, ZSTD(1)),
    throttle_reasons UInt64 CODEC(T64, ZSTD(1)), -- NVML's bit mask
    xid_error Nullable(UInt32) CODEC(T64, ZSTD(1)), -- the last one
    uncorrected_errors Nullable(UInt64) CODEC(T64, ZSTD(1)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (device, at)
TTL greatest(toDateTime(at), toDateTime(ingested_at)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
