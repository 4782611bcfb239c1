"""Fingerprints of the secrets that an installation was made with.

The control plane fills the table at its next start, from the secrets that are there.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "known_secrets",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("public", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_known_secrets")),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("known_secrets")
