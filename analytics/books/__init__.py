"""The books: recorded cost and the entries that correct it, months that are closed, and invoices that were issued."""
