-- Why: prompts and completions, for tenants that switched their keeping on; apart from `requests`, with its own expiry.
-- Undo: DROP TABLE content.
-- Locks: nothing; it only makes tables that did not exist.

CREATE TABLE IF NOT EXISTS content
(
    tenant LowCardinality(String),
    request_id UUID CODEC(ZSTD(1)),
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    model LowCardinality(String),
    encoding LowCardinality(String), -- '' is plain text; else how it was redacted or sealed
    prompt String CODEC(ZSTD(3)),
    completion String CODEC(ZSTD(3)),
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (tenant, request_id)
TTL greatest(toDateTime(started_at), toDateTime(ingested_at)) + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
