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
WHERE started_at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
    AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})
    AND ({key:Nullable(String)} IS NULL OR key_id = {key:Nullable(String)})
    AND ({model:Nullable(String)} IS NULL OR model = {model:Nullable(String)})
    AND ({outcome:Nullable(String)} IS NULL OR outcome = {outcome:Nullable(String)})
    AND ({request_id:Nullable(UUID)} IS NULL OR request_id = {request_id:Nullable(UUID)})
    AND ({route:Nullable(String)} IS NULL OR route = {route:Nullable(String)})
    AND ({provider:Nullable(String)} IS NULL OR provider = {provider:Nullable(String)})
    AND ({replica:Nullable(String)} IS NULL OR replica = {replica:Nullable(String)})
    AND ({error:Nullable(String)} IS NULL OR error_code = {error:Nullable(String)})
    AND ({status:Nullable(UInt16)} IS NULL OR status = {status:Nullable(UInt16)})
    AND ({upstream_status:Nullable(UInt16)} IS NULL
        OR upstream_status = {upstream_status:Nullable(UInt16)})
    AND ({user:Nullable(String)} IS NULL
        OR (end_user = {user:Nullable(String)} AND lower(end_user) LIKE {user_pattern:String}))
    AND ({conversation:Nullable(String)} IS NULL OR conversation_id = {conversation:Nullable(String)})
    AND ({run:Nullable(String)} IS NULL OR run_id = {run:Nullable(String)})
    AND ({prompt:Nullable(String)} IS NULL OR prompt_name = {prompt:Nullable(String)})
    AND ({trace:Nullable(String)} IS NULL OR trace_id = unhex(ifNull({trace:Nullable(String)}, '')))
    AND ({tag_name:Nullable(String)} IS NULL
        OR tags[ifNull({tag_name:Nullable(String)}, '')] = {tag_value:Nullable(String)})
    AND ({min_ttft_ns:Nullable(UInt64)} IS NULL OR ttft_ns > {min_ttft_ns:Nullable(UInt64)})
    AND ({min_duration_ns:Nullable(UInt64)} IS NULL OR duration_ns > {min_duration_ns:Nullable(UInt64)})
    AND ({min_attempts:Nullable(UInt16)} IS NULL OR attempts > {min_attempts:Nullable(UInt16)})
    AND ({word:Nullable(String)} IS NULL
        OR ({in_model:Bool} AND lower(model) LIKE {word_pattern:String})
        OR ({in_team:Bool} AND lower(team) LIKE {word_pattern:String})
        OR ({in_project:Bool} AND lower(project) LIKE {word_pattern:String})
        OR ({in_error_code:Bool} AND lower(error_code) LIKE {word_pattern:String})
        OR ({in_prompt_name:Bool} AND lower(prompt_name) LIKE {word_pattern:String})
        OR ({in_run_id:Bool} AND lower(run_id) LIKE {word_pattern:String})
        OR ({in_conversation_id:Bool} AND lower(conversation_id) LIKE {word_pattern:String})
        OR ({in_end_user:Bool} AND lower(end_user) LIKE {word_pattern:String}))
ORDER BY {sort:Identifier} DESC NULLS LAST, started_at DESC
LIMIT {row_limit:UInt32} OFFSET {row_offset:UInt32}
