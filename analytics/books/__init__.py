"""Accounting: corrections of recorded cost as ledger entries, closed months, and issued documents ("the books")."""
