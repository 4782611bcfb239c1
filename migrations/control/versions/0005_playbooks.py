"""Playbooks: what is done when a provider is out as a whole.

Why: a provider's outage concerns all pools at once; what counts as one, who answers meanwhile and how it comes back
belong to the provider.
Undo: `downgrade` drops the table; each target is then left alone by itself.
Locks: none, the table is new.

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the table, empty."""
    op.create_table(
        "playbooks",
        sa.Column("provider", sa.String(63), primary_key=True),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop what `upgrade` made."""
    op.drop_table("playbooks")
