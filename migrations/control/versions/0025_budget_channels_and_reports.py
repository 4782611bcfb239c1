"""Budgets name the alert channels that their thresholds notify; channels may be sent a cost report.

Why: a budget with an alert is one object, not a budget and a rule that names its tenant.
Undo: `downgrade` drops both columns.
Locks: none to speak of; both columns have a constant default.

Revision: 0025, after 0024
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("budgets", sa.Column("channels", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("alert_channels", sa.Column("report", sa.String(10), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("alert_channels", "report")
    op.drop_column("budgets", "channels")
