"""Views that people name and keep; and which account an admin token was made by.

Why: a view of the requests could be kept as a bookmark alone; and a token worked on after the account that had made it
was removed.
Undo: `downgrade` drops both; views are lost, and tokens outlive accounts again.
Locks: a moment; there are few tokens. Those of accounts that are still there are found by the audit's entries of their
making. Those of accounts that were removed before stay without one, and work until they are revoked.

Revision: 0015, after 0014
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None

_MOMENT = sa.DateTime(timezone=True)
_MADE_BY = """
    UPDATE admin_tokens SET user_id = COALESCE((
        SELECT MIN(users.id) FROM audit JOIN users ON users.email = audit.actor
        WHERE audit.action = 'token.create'
          AND audit.subject IN (admin_tokens.id, admin_tokens.tenant_id || '/' || admin_tokens.id)
    ), '')
"""


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
    op.execute(_MADE_BY)


def downgrade() -> None:
    """Drop both."""
    op.drop_column("admin_tokens", "user_id")
    op.drop_index("ix_saved_views_tenant_id", table_name="saved_views")
    op.drop_table("saved_views")
