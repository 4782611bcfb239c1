"""Providers' bills that were imported, whose keys and models they name, and what the last reconciliation found.

Why: nothing compared the books with what providers bill.
Undo: `downgrade` drops the tables and with them the imported bills, which can be imported again.
Locks: nothing; it only makes tables that did not exist.

Revision: 0024, after 0023
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the tables, empty."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "provider_bills",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("format", sa.String(20), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("usd_rate", sa.String(40), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("billed_usd", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("author", sa.String(300), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_provider_bills")),
        sa.UniqueConstraint("digest", name=op.f("uq_provider_bills_digest")),
    )
    op.create_index("ix_provider_bills_provider_month", "provider_bills", ["provider", "month"])
    op.create_table(
        "provider_bill_names",
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("meaning", sa.String(200), nullable=False),
        sa.CheckConstraint("\"kind\" IN ('key', 'model')", name=op.f("ck_provider_bill_names_kind_known")),
        sa.PrimaryKeyConstraint("provider", "kind", "name", name=op.f("pk_provider_bill_names")),
    )
    op.create_table(
        "reconciliations",
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("computed_at", moment, nullable=False),
        sa.Column("bills", sa.String(64), nullable=False),
        sa.Column("billed_usd", sa.String(40), nullable=False),
        sa.Column("recorded_usd", sa.String(40), nullable=False),
        sa.Column("unknown_usd", sa.String(40), nullable=False),
        sa.Column("causes", sa.JSON(), nullable=False),
        sa.Column("differences", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "month", name=op.f("pk_reconciliations")),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("reconciliations")
    op.drop_table("provider_bill_names")
    op.drop_index("ix_provider_bills_provider_month", table_name="provider_bills")
    op.drop_table("provider_bills")
