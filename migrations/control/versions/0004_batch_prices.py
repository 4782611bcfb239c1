"""Prices for batches: what a standard cost card charges for what a batch asks.

Why: providers sell batches at half their price, and a model of one's own may be offered for less at night as well.
Price cards need no column: theirs stand in the card's JSON.
Undo: `downgrade` drops the columns; batches then cost what everything else does.
Locks: none that is felt, the columns are added empty.

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None

_COLUMNS = ("batch_input_usd_per_mtok", "batch_cached_input_usd_per_mtok", "batch_output_usd_per_mtok")


def upgrade() -> None:
    """Add the columns, empty: cards keep their prices for batches too."""
    for name in _COLUMNS:
        op.add_column("standard_costs", sa.Column(name, sa.String(40), nullable=True))


def downgrade() -> None:
    """Drop what `upgrade` made."""
    for name in reversed(_COLUMNS):
        op.drop_column("standard_costs", name)
