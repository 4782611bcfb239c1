-- What a budget's requests were charged in a period, a row per subject: {level} is the budget's level, {wanted} its
-- subject ('*': each subject separately), {tag} the tag's name. Money in pico-USD. A request belongs to the period of
-- its admission. charged_pico_sum is the charge at the request's end; free_pico_sum is its part from reservations of
-- requests that failed with an error status, which cost nothing. Only requests since {counted_from} were charged to the
-- budget.
SELECT
    multiIf(
        {level:String} = 'team', team,
        {level:String} = 'project', if(project = '', '', concat(team, '/', project)),
        {level:String} = 'key', key_id,
        {level:String} = 'user', end_user,
        {level:String} = 'tag', if(mapContains(tags, {tag:String}), concat({tag:String}, '=', tags[{tag:String}]), ''),
        ''
    ) AS subject_label,
    count() AS request_count,
    countIf(is_free) AS free_count,
    reinterpret(sum(charged), 'Int128') AS charged_pico_sum,
    reinterpret(sumIf(charged, is_free), 'Int128') AS free_pico_sum,
    reinterpret(sumIf(charged, was_counted), 'Int128') AS counted_pico_sum
FROM
(
    SELECT
        team, project, key_id, end_user, tags,
        ifNull(charged_usd, toDecimal64(0, 12)) AS charged,
        outcome = 'error' AND cost_usd IS NULL AND cost_basis = 'unpriced' AND count_method = 'none'
            AND error_code NOT IN ('upstream_timeout', 'upstream_broken', 'internal_error') AS is_free,
        started_at + toIntervalNanosecond(ifNull(admission_ns, 0)) AS admitted_at,
        admitted_at >= fromUnixTimestamp64Nano({counted_from:Int64}, 'UTC') AS was_counted
    FROM requests
    WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
        AND ({model:String} = '' OR model = {model:String})
        AND outcome != 'rejected'
        AND started_at >= fromUnixTimestamp64Nano({start:Int64}, 'UTC') - INTERVAL 1 HOUR
        AND admitted_at >= fromUnixTimestamp64Nano({start:Int64}, 'UTC')
        AND admitted_at < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
)
WHERE {level:String} = 'tenant' OR (subject_label != '' AND {wanted:String} IN ('*', subject_label))
GROUP BY subject_label
ORDER BY subject_label
