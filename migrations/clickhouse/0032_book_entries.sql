-- Why: reports, charts and exports add booked corrections to recorded cost, and ask the store alone.
-- Undo: DROP TABLE book_entries.
-- Locks: nothing; it only makes a table that did not exist.

-- A copy of the entries that are booked in the control database (contracts/pricing/book_entries.py), which is where they are kept. An
-- entry that is copied again replaces itself, so readers ask with FINAL. Counts are differences, below 0 where requests
-- got a price. `used_at` is when the usage was.
CREATE TABLE IF NOT EXISTS book_entries
(
    adjustment String CODEC(ZSTD(1)),
    number UInt32 CODEC(T64, ZSTD(1)),
    kind LowCardinality(String), -- rerate, reversal, credit, credit_reversal
    card_version LowCardinality(String),
    invoice String CODEC(ZSTD(1)), -- the invoice that a credit is about
    period LowCardinality(String), -- the month that it is billed in, such as 2026-11
    tenant LowCardinality(String),
    team LowCardinality(String),
    project LowCardinality(String),
    key_id LowCardinality(String),
    model LowCardinality(String),
    provider LowCardinality(String),
    price_version LowCardinality(String),
    used_at DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    requests Int64 CODEC(T64, ZSTD(1)),
    cost_usd Decimal(38, 12) CODEC(ZSTD(1)),
    no_price_requests Int64 CODEC(T64, ZSTD(1)),
    partly_unpriced_requests Int64 CODEC(T64, ZSTD(1)),
    unpriced_input_tokens Int64 CODEC(T64, ZSTD(1)),
    unpriced_output_tokens Int64 CODEC(T64, ZSTD(1)),
    estimated_usd Decimal(38, 12) CODEC(ZSTD(1)),
    estimated_requests Int64 CODEC(T64, ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYear(used_at)
ORDER BY (tenant, used_at, adjustment, number)
SETTINGS non_replicated_deduplication_window = 10000;
