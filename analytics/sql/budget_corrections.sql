-- Sums of booked corrections of a budget's usage in a period, a row per subject as in budget_ledger.sql. Money in pico-
-- USD. Entries have no users and tags, so budgets of these are not corrected.
SELECT
    multiIf(
        {level:String} = 'team', team,
        {level:String} = 'project', if(project = '', '', concat(team, '/', project)),
        {level:String} = 'key', key_id,
        ''
    ) AS subject_label,
    reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum
FROM book_entries FINAL
WHERE ({tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)})
    AND ({model:String} = '' OR model = {model:String})
    AND used_at >= toDateTime(intDiv({start:Int64}, 1000000000), 'UTC')
    AND used_at < toDateTime(intDiv({end:Int64}, 1000000000), 'UTC')
    AND {level:String} NOT IN ('user', 'tag')
    AND ({level:String} = 'tenant' OR (subject_label != '' AND {wanted:String} IN ('*', subject_label)))
GROUP BY subject_label
ORDER BY subject_label
