-- Why: what people and judges thought of answers, beside the requests that gave them.
-- Undo: DROP TABLE feedback.
-- Locks: nothing; it only makes a table that did not exist.

-- The latest row of a request, name and author holds, so that a vote can be changed and a repeated call counts once.
-- `source` is user (by the application's key), person (by an admin token) or judge (a configured model or service).
CREATE TABLE IF NOT EXISTS feedback
(
    tenant LowCardinality(String),
    request_id UUID CODEC(ZSTD(1)),
    name LowCardinality(String), -- what is judged, such as 'helpful'
    source LowCardinality(String),
    author String CODEC(ZSTD(1)), -- key id, token name or judge; an end user's own name is not kept
    score Float64 CODEC(ZSTD(1)), -- 0 to 1
    comment String CODEC(ZSTD(3)),
    request_started_at DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)), -- by the id, so that joins read little
    at DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree(at)
PARTITION BY toYYYYMM(request_started_at)
ORDER BY (tenant, toStartOfHour(request_started_at), request_id, name, source, author)
TTL toDateTime(request_started_at) + INTERVAL 13 MONTH
SETTINGS non_replicated_deduplication_window = 10000;
