-- Number and sum of corrections by tenant, to detect that budgets must be read again.
SELECT tenant AS tenant_label, count() AS entry_count, reinterpret(sum(cost_usd), 'Int128') AS cost_pico_sum
FROM book_entries FINAL
GROUP BY tenant_label
