"""Adjustments of the books and their entries.

Why: the cost of a request that was recorded with a wrong price, or none, could not be corrected.
Undo: `downgrade` drops the tables and with them every correction.
Locks: nothing; it only makes tables that did not exist.

Revision: 0020, after 0019
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the tables, empty."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "book_adjustments",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("starts_at", moment, nullable=False),
        sa.Column("ends_at", moment, nullable=False),
        sa.Column("card_version", sa.String(120), nullable=False),
        sa.Column("invoice", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("author", sa.String(300), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("approved_by", sa.String(300), nullable=False),
        sa.Column("approved_at", moment, nullable=True),
        sa.Column("reverses", sa.String(40), nullable=True),
        sa.Column("entry_count", sa.Integer(), nullable=False),
        sa.Column("amount_usd", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.CheckConstraint(
            "\"kind\" IN ('rerate', 'reversal', 'credit', 'credit_reversal')",
            name=op.f("ck_book_adjustments_kind_known"),
        ),
        sa.CheckConstraint(
            "\"state\" IN ('proposed', 'booked', 'rejected')", name=op.f("ck_book_adjustments_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_book_adjustments")),
        sa.UniqueConstraint("reverses", name=op.f("uq_book_adjustments_reverses")),
    )
    op.create_index("ix_book_adjustments_tenant_id", "book_adjustments", ["tenant_id"])
    op.create_table(
        "book_entries",
        sa.Column("adjustment_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("tenant_id", sa.String(200), nullable=False),
        sa.Column("team", sa.String(200), nullable=False),
        sa.Column("project", sa.String(200), nullable=False),
        sa.Column("key_id", sa.String(200), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("provider", sa.String(200), nullable=False),
        sa.Column("price_version", sa.String(200), nullable=False),
        sa.Column("used_at", moment, nullable=False),
        sa.Column("period", sa.String(7), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("amount_usd", sa.String(40), nullable=False),
        sa.Column("unpriced_requests", sa.BigInteger(), nullable=False),
        sa.Column("partly_unpriced_requests", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("estimated_usd", sa.String(40), nullable=False),
        sa.Column("estimated_requests", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["adjustment_id"],
            ["book_adjustments.id"],
            name=op.f("fk_book_entries_adjustment_id_book_adjustments"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("adjustment_id", "number", name=op.f("pk_book_entries")),
    )
    op.create_index("ix_book_entries_tenant_id_period", "book_entries", ["tenant_id", "period"])
    op.create_index("ix_book_entries_used_at", "book_entries", ["used_at"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("book_entries")
    op.drop_table("book_adjustments")
