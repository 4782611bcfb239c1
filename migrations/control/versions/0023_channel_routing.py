"""Channels take alerts of some severities and tenants only.

Why: pages and tickets, and different tenants' alerts, go to different people.
Undo: `downgrade` drops the two columns.
Locks: none to speak of; both columns have a constant default.

Revision: 0023, after 0022
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("severities", "tenants"):
        op.add_column("alert_channels", sa.Column(name, sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop the columns."""
    for name in ("severities", "tenants"):
        op.drop_column("alert_channels", name)
