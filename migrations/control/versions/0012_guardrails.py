"""Guardrail policies: which requests go through which stages, before and after the model.

Why: they were in a gateway's own file alone.
Undo: `downgrade` drops the table.
Locks: none; the table is new.

Revision: 0012, after 0011
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "guardrails",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_guardrails")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("guardrails")
