-- Scores of answers, by tenant, model, prompt version, name and source; only the latest of each author counts.
SELECT
    asked.tenant AS tenant_name,
    asked.model AS model_name,
    asked.prompt_name AS prompt,
    asked.prompt_version AS version,
    given.name AS score_name,
    given.source AS score_source,
    count() AS scores,
    avg(given.score) AS mean_score,
    countIf(given.score < 0.5) AS low_scores
FROM
(
    SELECT tenant, request_id, name, source, score
    FROM feedback
    FINAL
    WHERE request_started_at >= toDateTime({start:UInt32}, 'UTC')
        AND request_started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
) AS given
INNER JOIN
(
    SELECT tenant, request_id, model, prompt_name, prompt_version
    FROM requests
    WHERE started_at >= toDateTime({start:UInt32}, 'UTC')
        AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
        AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({team:Nullable(String)} IS NULL OR team = {team:Nullable(String)})
        AND (tenant, request_id) IN -- few of them: all requests of the stretch would not fit into memory
        (
            SELECT tenant, request_id
            FROM feedback
            WHERE request_started_at >= toDateTime({start:UInt32}, 'UTC')
                AND request_started_at < toDateTime64({end:UInt32}, 9, 'UTC')
                AND ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        )
) AS asked ON asked.tenant = given.tenant AND asked.request_id = given.request_id
GROUP BY tenant_name, model_name, prompt, version, score_name, score_source
ORDER BY tenant_name, model_name, prompt, version, score_name, score_source
LIMIT 1000
