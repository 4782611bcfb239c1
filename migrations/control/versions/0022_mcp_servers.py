"""MCP servers and tool rules.

Why: they were in a gateway's own file alone.
Undo: `downgrade` drops the tables.
Locks: none; the tables are new.

Revision: 0022, after 0021
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the tables."""
    for name in ("mcp_servers", "mcp_tool_rules"):
        op.create_table(
            name,
            sa.Column("id", sa.String(63), nullable=False),
            sa.Column("rules", sa.JSON(), nullable=False),
            sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
            sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}")),
        )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("mcp_tool_rules")
    op.drop_table("mcp_servers")
