"""Holds end by themselves, and may be about one route.

Why: with the evaluator of alerts away or switched off, what an objective held back was held back for ever; and an
objective about one route held back everything.
Undo: `downgrade` drops both columns.
Locks: holds are few. Those of before have ended: the next look asks again for what is still wanted.

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the end, at the beginning for holds of before, and the route."""
    with op.batch_alter_table("policy_holds") as table:
        table.add_column(sa.Column("route", sa.String(200), nullable=False, server_default=""))
        table.add_column(sa.Column("until", _MOMENT, nullable=True))
    op.execute("UPDATE policy_holds SET until = since")
    with op.batch_alter_table("policy_holds") as table:
        table.alter_column("route", existing_type=sa.String(200), existing_nullable=False, server_default=None)
        table.alter_column("until", existing_type=_MOMENT, nullable=False)


def downgrade() -> None:
    """Drop both."""
    with op.batch_alter_table("policy_holds") as table:
        table.drop_column("until")
        table.drop_column("route")
