"""The region that a price card holds for.

Why: hosted models cost more in some regions, and a card could not tell them apart.
Undo: `downgrade` deletes the cards for single regions, which would price every region, and drops the column. Records
keep the prices they were given.
Locks: a moment; the column has a default.

Revision: 0029, after 0028
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("prices", sa.Column("region", sa.String(63), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Drop it, without the cards that hold for a region."""
    op.execute("DELETE FROM prices WHERE region <> ''")
    op.drop_column("prices", "region")
