-- Why: this number belongs to another branch, whose file replaces this one.
-- Undo: nothing.
-- Locks: nothing.

DROP VIEW IF EXISTS number_of_another_branch;
