"""The token that made a token: it ends no later, and is revoked with it.

Tokens made before are found a parent by the audit, which says who made them.
"""

import re
from typing import Final

import sqlalchemy as sa
from alembic import context, op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | None = None
depends_on: str | None = None

_BY_TOKEN: Final = re.compile(r" \((tok_[0-9a-f]{32})\)$")  # how the audit writes who changed something by a token


def upgrade() -> None:
    """Add the column, and fill it from the audit."""
    op.add_column("admin_tokens", sa.Column("parent_id", sa.String(40), nullable=False, server_default=sa.text("''")))
    op.create_index("ix_admin_tokens_parent_id", "admin_tokens", ["parent_id"])
    if not context.is_offline_mode():  # a script of SQL is for a database without tokens
        _name_parents()


def downgrade() -> None:
    """Drop the column."""
    op.drop_index("ix_admin_tokens_parent_id", table_name="admin_tokens")
    op.drop_column("admin_tokens", "parent_id")


def _name_parents() -> None:
    bind = op.get_bind()
    tokens = set(bind.scalars(sa.text("SELECT id FROM admin_tokens")))
    if not tokens:
        return
    found = []
    for subject, actor in bind.execute(sa.text("SELECT subject, actor FROM audit WHERE action = 'token.create'")):
        token, by_token = subject.rpartition("/")[2], _BY_TOKEN.search(actor)
        if by_token is not None and {token, by_token.group(1)} <= tokens:
            found.append({"token": token, "parent": by_token.group(1)})
    if found:
        bind.execute(sa.text("UPDATE admin_tokens SET parent_id = :parent WHERE id = :token"), found)
