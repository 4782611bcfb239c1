"""Views that people name and keep; and which account an admin token was made by.

Why: a view of the requests could be kept as a bookmark alone; and a token worked on after the account that had made it
was removed.
Undo: `downgrade` drops both; views are lost, and tokens outlive accounts again.
Locks: a moment, and the audit is gone through once. Tokens of accounts that are still there are found by the audit's
entries of their making, also those that were made with another token. Those of accounts that were removed before stay
without one, and work until they are revoked.

Revision: 0015, after 0014
"""

import re
from typing import Final

import sqlalchemy as sa
from alembic import context, op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None

_MOMENT = sa.DateTime(timezone=True)
_BY_TOKEN: Final = re.compile(r" \((tok_[0-9a-f]{32})\)$")  # how the audit writes who changed something by a token


def upgrade() -> None:
    """Make the table, and name the accounts of tokens."""
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("page", sa.String(20), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("is_shared", sa.Boolean(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_views")),
        sa.UniqueConstraint("owner_id", "page", "name", name=op.f("uq_saved_views_owner_id")),
    )
    op.create_index("ix_saved_views_tenant_id", "saved_views", ["tenant_id"])
    op.add_column("admin_tokens", sa.Column("user_id", sa.String(40), nullable=False, server_default=sa.text("''")))
    if not context.is_offline_mode():  # a script of SQL is for a database without tokens
        _name_accounts()


def downgrade() -> None:
    """Drop both."""
    op.drop_column("admin_tokens", "user_id")
    op.drop_index("ix_saved_views_tenant_id", table_name="saved_views")
    op.drop_table("saved_views")


def _name_accounts() -> None:
    bind = op.get_bind()
    tokens = set(bind.scalars(sa.text("SELECT id FROM admin_tokens")))
    if not tokens:
        return
    accounts = {email: account for email, account in bind.execute(sa.text("SELECT email, id FROM users"))}
    made_by: dict[str, str] = {}
    # In their order: who makes a token with another one had that before.
    for subject, actor in bind.execute(
        sa.text("SELECT subject, actor FROM audit WHERE action = 'token.create' ORDER BY id")
    ):
        by_token = _BY_TOKEN.search(actor)
        account = accounts.get(actor) if by_token is None else made_by.get(by_token.group(1))
        if account is not None:
            made_by[subject.rpartition("/")[2]] = account
    found = [{"token": token, "account": account} for token, account in made_by.items() if token in tokens]
    if found:
        bind.execute(sa.text("UPDATE admin_tokens SET user_id = :account WHERE id = :token"), found)
