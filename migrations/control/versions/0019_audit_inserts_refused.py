"""The audit table refuses rows that are not its next entry.

Why: a row with a number below the first entry's, or in the place of another, could be inserted.
Undo: `downgrade` drops the triggers.
Locks: none to speak of; no row is read or changed. Rows that are there already are left to `tollkeeper audit verify`.

Revision: 0019, after 0018
"""

from alembic import op

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: str | None = None
depends_on: str | None = None

_REFUSED = "the audit takes its next entry only"


def upgrade() -> None:
    """Add the triggers."""
    if op.get_context().dialect.name == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        # A number that SQLite chooses is known after the insert; what INSERT OR REPLACE takes away, before it.
        op.execute(
            "CREATE TRIGGER audit_replaces_none BEFORE INSERT ON audit "
            f"WHEN NEW.id > 0 AND EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) {refuse}"
        )
        op.execute(
            "CREATE TRIGGER audit_only_appends AFTER INSERT ON audit "
            f"WHEN NEW.id < 1 OR NEW.id < (SELECT max(id) FROM audit) {refuse}"
        )
        return
    # The second is deferred: an entry is chained as its transaction ends.
    for name, kind, when, condition in (
        ("audit_only_appends", "TRIGGER", "", "NEW.id < 1 OR EXISTS (SELECT 1 FROM audit WHERE id > NEW.id)"),
        (
            *("audit_only_chained", "CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED"),
            "EXISTS (SELECT 1 FROM audit WHERE id = NEW.id AND hash = '')",
        ),
    ):
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN "
            f"RAISE EXCEPTION '{_REFUSED}' USING ERRCODE = 'integrity_constraint_violation'; END IF; "
            "RETURN NULL; END $$"
        )
        op.execute(f"CREATE {kind} {name} AFTER INSERT ON audit {when} FOR EACH ROW EXECUTE FUNCTION {name}()")


def downgrade() -> None:
    """Drop the triggers."""
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_only_appends")
        op.execute("DROP TRIGGER audit_replaces_none")
        return
    for name in ("audit_only_appends", "audit_only_chained"):
        op.execute(f"DROP TRIGGER {name} ON audit")
        op.execute(f"DROP FUNCTION {name}()")
