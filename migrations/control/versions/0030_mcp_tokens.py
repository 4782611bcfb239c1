"""Access tokens of MCP servers.

Why: an authorization server that rotates refresh tokens takes each once, so all gateways have to share the last one.
Undo: `downgrade` drops the table. Servers with a refresh token have to be authorized again if it was rotated.
Locks: none; the table is new.

Revision: 0030, after 0029
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "mcp_tokens",
        sa.Column("server", sa.String(63), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("server", name=op.f("pk_mcp_tokens")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("mcp_tokens")
