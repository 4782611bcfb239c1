"""The region that a price card holds for, and who asked to end two-person approval.

Why: hosted models cost more in some regions, and a card could not tell them apart. One person alone could end the rule
that needs two.
Undo: `downgrade` deletes the cards for single regions, which would price every region, and drops the columns. Records
keep the prices they were given.
Locks: a moment; the columns have a default.

Revision: 0029, after 0028
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the columns."""
    empty = sa.text("''")
    op.add_column("prices", sa.Column("region", sa.String(63), nullable=False, server_default=empty))
    asked = sa.Column("one_person_asked_by", sa.String(300), nullable=False, server_default=empty)
    op.add_column("book_profiles", asked)


def downgrade() -> None:
    """Drop them, without the cards that hold for a region."""
    op.drop_column("book_profiles", "one_person_asked_by")
    op.execute("DELETE FROM prices WHERE region <> ''")
    op.drop_column("prices", "region")
