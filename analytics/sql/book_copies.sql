-- Number of entries of each adjustment in the store, and their sums.
SELECT adjustment, count() AS entries, sum(cost_usd) AS amount
FROM book_entries FINAL
GROUP BY adjustment
ORDER BY adjustment
