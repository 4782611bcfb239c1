"""Users and groups that an identity provider provisions, and keys that an account made for itself.

Why: SCIM creates and removes accounts, and a key ends with the account that made it.
Undo: `downgrade` drops both; accounts and teams stay.
Locks: none to speak of; the column has a constant default.

Revision: 0027, after 0026
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("api_keys", sa.Column("user_id", sa.String(40), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "directory_entries",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("name", sa.String(320), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_directory_entries")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["tenants.id"],
            name=op.f("fk_directory_entries_tenant_id_tenants"),
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_directory_entries_tenant_kind", "directory_entries", ["tenant_id", "kind", "name"])


def downgrade() -> None:
    """Drop the table and the column."""
    op.drop_table("directory_entries")
    op.drop_column("api_keys", "user_id")
