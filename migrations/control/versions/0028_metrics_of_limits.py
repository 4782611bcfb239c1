"""Limits: the table no longer lists the metrics that there are.

Why: every new metric needed a migration. The API checks the metric of a limit. Gateways leave out a row with an
unknown metric and name it.
Undo: `downgrade` deletes the limits on metrics that the constraint did not know, and adds it again.
Locks: SQLite copies the table, PostgreSQL drops a constraint; limits are few.

Revision: 0028, after 0027
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: str | None = None
depends_on: str | None = None

_NAME = "ck_limits_metric_known"
_CONDITION = "\"metric\" IN ('requests', 'input_tokens', 'output_tokens', 'tokens', 'concurrency', 'gpu_ms', 'usd')"
_LEVELS = "'tenant', 'team', 'project', 'key', 'user', 'tag', 'conversation'"


def upgrade() -> None:
    """Drop the constraint."""
    with op.batch_alter_table("limits", copy_from=_limits(_check("metric_known", _CONDITION))) as table:
        table.drop_constraint(op.f(_NAME), type_="check")


def downgrade() -> None:
    """Add the constraint, once no row contradicts it."""
    op.execute(f"DELETE FROM limits WHERE NOT ({_CONDITION})")
    with op.batch_alter_table("limits", copy_from=_limits()) as table:
        table.create_check_constraint(op.f(_NAME), _CONDITION)


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(f"ck_limits_{name}"))


def _limits(*more: sa.CheckConstraint) -> sa.Table:
    """Return the table as it is, for SQLite, which can only copy it and does not tell its constraints to Alembic."""
    return sa.Table(
        "limits",
        sa.MetaData(),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("metric", sa.String(30), nullable=False),
        sa.Column("window", sa.String(20), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("amount_usd", sa.String(40), nullable=True),
        sa.Column("when_away", sa.String(20), nullable=False),
        sa.Column("when_unpriced", sa.String(20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _check("level_known", f'"level" IN ({_LEVELS})'),
        _check("window_known", "\"window\" IN ('', 'second', 'minute', 'hour', 'day')"),
        _check("when_away_known", "\"when_away\" IN ('share', 'refuse')"),
        _check("when_unpriced_known", "\"when_unpriced\" IN ('refuse', 'allow')"),
        _check("amount_unless_usd", "(amount IS NULL) = (metric = 'usd')"),
        _check("amount_usd_where_usd", "(amount_usd IS NULL) = (metric <> 'usd')"),
        _check("amount_range", "amount BETWEEN 0 AND 999999999999999999"),
        _check("amount_usd_range", "CAST(amount_usd AS NUMERIC) >= 0"),
        _check("window_where_counted", "(\"window\" = '') = (metric = 'concurrency' OR level = 'conversation')"),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_limits_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
        sa.UniqueConstraint(
            "tenant_id", "level", "subject", "model", "metric", "window", name=op.f("uq_limits_tenant_id")
        ),
        *more,
    )
