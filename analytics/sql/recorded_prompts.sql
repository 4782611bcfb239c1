-- Stored prompts of a tenant to a model, latest first.
SELECT prompt
FROM content
WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND model = {model:String}
    AND prompt != ''
ORDER BY started_at DESC
LIMIT {row_limit:UInt32}
