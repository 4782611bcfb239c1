"""Months that are closed, what invoices say of tenants, and the register of issued documents.

Why: an invoice changed with every late record, and none was kept.
Undo: `downgrade` drops the tables and with them the register.
Locks: nothing; it only makes tables that did not exist.

Revision: 0021, after 0020
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the tables, empty."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "book_profiles",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("legal_name", sa.String(200), nullable=False),
        sa.Column("address", sa.String(1000), nullable=False),
        sa.Column("tax_id", sa.String(60), nullable=False),
        sa.Column("purchase_order", sa.String(100), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("due_days", sa.Integer(), nullable=False),
        sa.Column("taxes", sa.JSON(), nullable=False),
        sa.Column("is_two_person", sa.Boolean(), nullable=False),
        sa.Column("updated_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_book_profiles")),
    )
    op.create_table(
        "book_periods",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("invoice", sa.String(40), nullable=False),
        sa.Column("changed_by", sa.String(300), nullable=False),
        sa.Column("changed_at", moment, nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("wish", sa.String(20), nullable=False),
        sa.Column("wished_by", sa.String(300), nullable=False),
        sa.CheckConstraint("\"state\" IN ('draft', 'review', 'closed')", name=op.f("ck_book_periods_state_known")),
        sa.PrimaryKeyConstraint("tenant_id", "month", name=op.f("pk_book_periods")),
    )
    op.create_table(
        "book_documents",
        sa.Column("number", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("corrects", sa.String(40), nullable=False),
        sa.Column("adjustment_id", sa.String(40), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("author", sa.String(300), nullable=False),
        sa.Column("issued_at", moment, nullable=False),
        sa.Column("due_at", moment, nullable=True),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("usd_rate", sa.String(40), nullable=False),
        sa.Column("net_usd", sa.String(40), nullable=False),
        sa.Column("net_by_month", sa.JSON(), nullable=False),
        sa.Column("subtotal", sa.String(40), nullable=False),
        sa.Column("tax", sa.String(40), nullable=False),
        sa.Column("taxes", sa.JSON(), nullable=False),
        sa.Column("payable", sa.String(40), nullable=False),
        sa.Column("html", sa.Text(), nullable=False),
        sa.Column("pdf_base64", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.CheckConstraint(
            "\"kind\" IN ('invoice', 'credit_note', 'cancellation')", name=op.f("ck_book_documents_kind_known")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_book_documents")),
    )
    op.create_index("ix_book_documents_tenant_id_month", "book_documents", ["tenant_id", "month"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("book_documents")
    op.drop_table("book_periods")
    op.drop_table("book_profiles")
