-- Which requests stand on a page of single ones in the order of {sort} (started_at, ttft_ns, duration_ns, cost_usd or
-- total_tokens), the highest first and what is unknown last: by their tenant and nanosecond, and how they ended. Texts
-- are compared whole; {word} may be a part of one, and {word_pattern} finds it in lower case, with the help of the
-- indexes of 0024, in the columns that are searched ({in_model} and so on).
-- Only columns are read that judge and order; requests_listed.sql reads the others of the page's rows alone.
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
