"""Incidents of abuse, as gateways see them.

Why: a key that is misused was known to the gateway that saw it alone.
Undo: `downgrade` drops the table.
Locks: none; the table is new.

Revision: 0014, after 0013
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "abuse_incidents",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("gateway", sa.String(200), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("key_id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(30), nullable=False),
        sa.Column("action", sa.String(20), nullable=False),
        sa.Column("limit_count", sa.Integer(), nullable=False),
        sa.Column("window_seconds", sa.Integer(), nullable=False),
        sa.Column("peak", sa.BigInteger(), nullable=False),
        sa.Column("sightings", sa.BigInteger(), nullable=False),
        sa.Column("throttled", sa.BigInteger(), nullable=False),
        sa.Column("first_at", _MOMENT, nullable=False),
        sa.Column("last_at", _MOMENT, nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_abuse_incidents")),
    )
    op.create_index("ix_abuse_incidents_tenant_id", "abuse_incidents", ["tenant_id", "last_at"])
    op.create_index("ix_abuse_incidents_last_at", "abuse_incidents", ["last_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("abuse_incidents")
