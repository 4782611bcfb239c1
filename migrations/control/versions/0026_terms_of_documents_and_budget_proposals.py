"""Issued documents keep what their terms added; budgets keep a raise that awaits a second person.

Why: a FOCUS file names discounts, free amounts and commitments of issued invoices; a hard budget is not raised by one
person if two are needed.
Undo: `downgrade` drops the columns.
Locks: none to speak of; all columns have a constant default.

Revision: 0026, after 0025
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("book_documents", sa.Column("terms", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("budgets", sa.Column("proposal", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("budgets", sa.Column("proposed_by", sa.String(300), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("budgets", "proposed_by")
    op.drop_column("budgets", "proposal")
    op.drop_column("book_documents", "terms")
