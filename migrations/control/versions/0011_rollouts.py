"""Rollouts: a candidate beside an incumbent, and what each gateway has seen of both.

Why: a canary was a name; now it has a weight that grows, and an end when it does harm.
Undo: `downgrade` drops both tables.
Locks: none; the tables are new.

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("route", sa.String(200), nullable=False),
        sa.Column("incumbent", sa.String(200), nullable=False),
        sa.Column("candidate", sa.String(200), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("term", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        _moment("stepped_at"),
        _moment("created_at"),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    op.create_index("ix_rollouts_route", "rollouts", ["route"])
    op.create_table(
        "rollout_observations",
        sa.Column("rollout_id", sa.String(63), nullable=False),
        sa.Column("gateway", sa.String(200), nullable=False),
        sa.Column("term", sa.Integer(), nullable=False),
        sa.Column("seen", sa.JSON(), nullable=False),
        sa.Column("shadow_day", sa.String(10), nullable=False),
        sa.Column("shadow_pico_usd", sa.BigInteger(), nullable=False),
        _moment("updated_at"),
        sa.ForeignKeyConstraint(
            ["rollout_id"],
            ["rollouts.id"],
            name=op.f("fk_rollout_observations_rollout_id_rollouts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_id", "gateway", name=op.f("pk_rollout_observations")),
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_table("rollout_observations")
    op.drop_table("rollouts")


def _moment(name: str) -> "sa.Column[object]":
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)
