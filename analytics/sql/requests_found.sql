-- Keys (tenant and start in ns) and outcomes of a page of requests, ordered by {sort} (started_at, ttft_ns,
-- duration_ns, cost_usd or total_tokens), highest first and unknown last. Texts are compared exactly; {word} may be a
-- substring, and {word_pattern} finds it in lower case with the indexes of 0024, in the searched columns ({in_model}
-- and so on). Only columns for filter and order are read; requests_listed.sql reads the others of the page's rows.
WITH
    ({{token_sum}}) AS total_tokens
SELECT
    tenant AS tenant_label,
    toUnixTimestamp64Nano(started_at) AS started_at_ns,
    outcome AS outcome_label
FROM requests
WHERE {{requests_searched}}
ORDER BY {sort:Identifier} DESC NULLS LAST, started_at DESC
LIMIT {row_limit:UInt32} OFFSET {row_offset:UInt32}
