"""What was used of a budget beyond what it could be charged.

Why: a target that ignores max_tokens makes an answer cost more than a hard budget has. The budget showed only what it
was charged, so its sum and the records' sum differed.
Undo: `downgrade` drops the column; the records keep the amounts.
Locks: a moment; the column has a default.

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column."""
    column = sa.Column("overdraft", sa.String(40), nullable=False, server_default=sa.text("'0'"))
    op.add_column("budget_states", column)


def downgrade() -> None:
    """Drop it."""
    op.drop_column("budget_states", "overdraft")
