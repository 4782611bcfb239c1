-- How many entries of each adjustment the store has, and what they come to.
SELECT adjustment, count() AS entries, sum(cost_usd) AS amount
FROM book_entries FINAL
GROUP BY adjustment
ORDER BY adjustment
