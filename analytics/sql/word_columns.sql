-- Which of the searched columns may contain {word_pattern} in a range. Each column is checked separately, as the search
-- would otherwise read all of them for every row. End users' names are not checked, as the search uses their index
-- (0024).
SELECT DISTINCT kind AS column_name
FROM distinct_values
WHERE kind IN ('model', 'team', 'project')
    AND lower(value) LIKE {word_pattern:String}
    AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
UNION ALL
(
    SELECT 'error_code' AS column_name
    FROM requests
    WHERE lower(error_code) LIKE {word_pattern:String}
        AND started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    LIMIT 1
)
UNION ALL
(
    SELECT 'prompt_name' AS column_name
    FROM requests
    WHERE lower(prompt_name) LIKE {word_pattern:String}
        AND started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    LIMIT 1
)
UNION ALL
(
    SELECT 'run_id' AS column_name
    FROM requests
    WHERE lower(run_id) LIKE {word_pattern:String}
        AND started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    LIMIT 1
)
UNION ALL
(
    SELECT 'conversation_id' AS column_name
    FROM requests
    WHERE lower(conversation_id) LIKE {word_pattern:String}
        AND started_at >= toDateTime64({start:Float64}, 9, 'UTC')
        AND started_at < toDateTime64({end:Float64}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    LIMIT 1
)
