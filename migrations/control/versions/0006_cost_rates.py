"""Cost rates: what a GPU's hour costs, what a currency is worth, and a tenant's monthly terms, dated.

Why: GPU time becomes money only by a rate; invoices are in the reader's currency, with the tenant's discounts.
Undo: `downgrade` drops the table; GPU costs are then unknown, and invoices in USD at price.
Locks: none, the table is new.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the table, empty."""
    op.create_table(
        "cost_rates",
        sa.Column("version", sa.String(120), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("rate", sa.JSON(), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('gpu', 'currency', 'terms')", name=op.f("ck_cost_rates_kind")),
    )
    op.create_index("ix_cost_rates_kind_subject", "cost_rates", ["kind", "subject"])


def downgrade() -> None:
    """Drop what `upgrade` made."""
    op.drop_index("ix_cost_rates_kind_subject", "cost_rates")
    op.drop_table("cost_rates")
