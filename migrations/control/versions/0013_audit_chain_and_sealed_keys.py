"""The audit becomes a chain that only grows; providers' keys can be kept here, sealed; budgets' webhooks are sealed.

Why: the one that could write to the database could take out or change what the audit says; a provider's key had to lie
in a file or a variable of each process; a webhook's path may be a secret. Undo: `downgrade` drops the chain and the
stored keys, and opens the webhooks with the same key. Locks: each entry of the audit is rewritten once, some 20,000 a
second; the control plane is not running meanwhile. What is chained here is what was found: the chain says nothing of
what was done to it before.

Revision: 0013, after 0012
"""

from collections.abc import Callable

import sqlalchemy as sa
from alembic import context, op

from backends.control.audit_chain import BEGINNING, entry_hash, facts_hash
from backends.control.sealer import Sealer
from backends.secrets.secret_files import SecretFiles
from contracts.control.base import UtcDateTime
from contracts.errors import ConfigurationError

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: str | None = None
depends_on: str | None = None

_AT_ONCE = 1000
_CHAINED = {"salt": 32, "facts_hash": 64, "prev": 64, "hash": 64}
_AUDIT = sa.table(
    "audit",
    sa.column("id", sa.BigInteger),
    sa.column("at", UtcDateTime),
    *(sa.column(name, sa.String) for name in ("actor", "action", "subject", "address", *_CHAINED)),
    sa.column("detail", sa.JSON),
)
_REFUSED = "the audit is append-only"
# An erasure may empty what an entry is about, and nothing else; and a transaction chains what it has just written.
_KEPT = ("id", "at", "actor", "action", "address", "facts_hash", "prev", "hash")


def upgrade() -> None:
    """Chain what is there, refuse changes from now on, make the table of keys, seal the webhooks."""
    for name, length in _CHAINED.items():
        op.add_column("audit", sa.Column(name, sa.String(length), nullable=False, server_default=sa.text("''")))
    if not context.is_offline_mode():
        _chain()
    _refuse_changes()
    op.create_table(
        "stored_keys",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stored_keys")),
    )
    op.add_column("budgets", sa.Column("webhook_sealed", sa.String(1000), nullable=False, server_default=sa.text("''")))
    _rewrite("webhook_url", "webhook_sealed", lambda sealer, url: sealer.seal(url))
    op.drop_column("budgets", "webhook_url")


def downgrade() -> None:
    """Allow changes again, and forget the chain and the keys."""
    op.add_column("budgets", sa.Column("webhook_url", sa.String(500), nullable=False, server_default=sa.text("''")))
    _rewrite("webhook_sealed", "webhook_url", lambda sealer, sealed: sealer.open(sealed))
    op.drop_column("budgets", "webhook_sealed")
    op.drop_table("stored_keys")
    _allow_changes()
    for name in reversed(_CHAINED):
        op.drop_column("audit", name)


def _chain() -> None:
    bind, after, prev = op.get_bind(), 0, BEGINNING
    columns = ("id", "at", "actor", "action", "subject", "address", "detail")
    while True:
        wanted = sa.select(*(_AUDIT.c[name] for name in columns)).where(_AUDIT.c.id > after)
        rows = bind.execute(wanted.order_by(_AUDIT.c.id).limit(_AT_ONCE)).all()
        for row in rows:
            facts = facts_hash("", row.subject, row.detail)
            digest = entry_hash(row.id, row.at, row.actor, row.action, row.address, facts, prev)
            chained = sa.update(_AUDIT).where(_AUDIT.c.id == row.id)
            bind.execute(chained.values(facts_hash=facts, prev=prev, hash=digest))
            after, prev = row.id, digest
        if len(rows) < _AT_ONCE:
            return


def _refuse_changes() -> None:
    same = " AND ".join(f"NEW.{name} IS NOT DISTINCT FROM OLD.{name}" for name in _KEPT)
    emptied = f"NEW.subject = 'erased' AND CAST(NEW.detail AS TEXT) = '{{}}' AND NEW.salt = '' AND {same}"
    if op.get_context().dialect.name == "sqlite":
        emptied = emptied.replace("IS NOT DISTINCT FROM", "IS")
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        changes = f"BEFORE UPDATE ON audit WHEN OLD.hash <> '' AND NOT ({emptied})"
        op.execute(f"CREATE TRIGGER audit_keeps_entries {changes} {refuse}")
        op.execute(f"CREATE TRIGGER audit_loses_none BEFORE DELETE ON audit {refuse}")
        return
    op.execute(
        "CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_keeps_entries BEFORE UPDATE ON audit FOR EACH ROW "
        f"WHEN (OLD.hash <> '' AND NOT ({emptied})) EXECUTE FUNCTION audit_refuses()"
    )
    op.execute("CREATE TRIGGER audit_loses_none BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuses()")
    op.execute(
        "CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT "
        "EXECUTE FUNCTION audit_refuses()"
    )


def _allow_changes() -> None:
    is_sqlite = op.get_context().dialect.name == "sqlite"
    for name in ("audit_keeps_entries", "audit_loses_none", *(() if is_sqlite else ("audit_is_not_emptied",))):
        op.execute(f"DROP TRIGGER {name}" + ("" if is_sqlite else " ON audit"))
    if not is_sqlite:
        op.execute("DROP FUNCTION audit_refuses()")


def _rewrite(source: str, to: str, change: Callable[[Sealer, str], str]) -> None:
    if context.is_offline_mode():
        return  # a script of SQL cannot seal: it is for a database without budgets
    budgets = sa.table("budgets", sa.column("id", sa.String), sa.column(source, sa.String), sa.column(to, sa.String))
    bind = op.get_bind()
    rows = bind.execute(sa.select(budgets.c.id, budgets.c[source]).where(budgets.c[source] != "")).all()
    if not rows:
        return
    secrets = context.config.attributes.get("secrets")
    if not isinstance(secrets, SecretFiles):
        raise ConfigurationError(
            "budgets' webhooks are sealed with a key of the secrets directory; migrate with `python -m migrations`, "
            "which knows where it is"
        )
    sealer = Sealer.of(secrets)
    for row in rows:
        bind.execute(sa.update(budgets).where(budgets.c.id == row.id).values({to: change(sealer, row[1])}))
