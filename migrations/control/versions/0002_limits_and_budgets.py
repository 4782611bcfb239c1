"""Limits and budgets: made again with checks of what they may say, and tables for budgets' states and events.

Why: what a limit or budget may say is checked by the database too, and what is spent of a budget is written down. Undo:
`downgrade` makes the two tables as they were, empty; limits, budgets and their states are lost with it. Locks: nothing
waits; no earlier version could write to these tables, so they are dropped and made instead of altered.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None

_LEVELS = "'tenant', 'team', 'project', 'key', 'user', 'tag'"
_METRICS = "'requests', 'input_tokens', 'output_tokens', 'tokens', 'concurrency', 'gpu_ms', 'usd'"


def upgrade() -> None:
    """Make budgets and limits again, then the tables below budgets."""
    op.drop_table("limits")
    op.drop_table("budgets")
    _create_limits()
    _create_budgets()
    _create_states()
    _create_events()


def downgrade() -> None:
    """Drop the tables, children first, and make budgets and limits as 0001 did."""
    for table in ("budget_events", "budget_states", "budgets", "limits"):
        op.drop_table(table)
    _create_first_budgets()
    _create_first_limits()


def _tenant_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant_id"], ["tenants.id"], name=op.f(f"fk_{table}_tenant_id_tenants"), ondelete="CASCADE"
    )


def _budget_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["budget_id"], ["budgets.id"], name=op.f(f"fk_{table}_budget_id_budgets"), ondelete="CASCADE"
    )


def _check(table: str, name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(f"ck_{table}_{name}"))


def _create_limits() -> None:
    op.create_table(
        "limits",
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
        _check("limits", "level_known", f"\"level\" IN ({_LEVELS}, 'conversation')"),
        _check("limits", "metric_known", f'"metric" IN ({_METRICS})'),
        _check("limits", "window_known", "\"window\" IN ('', 'second', 'minute', 'hour', 'day')"),
        _check("limits", "when_away_known", "\"when_away\" IN ('share', 'refuse')"),
        _check("limits", "when_unpriced_known", "\"when_unpriced\" IN ('refuse', 'allow')"),
        _check("limits", "amount_unless_usd", "(amount IS NULL) = (metric = 'usd')"),
        _check("limits", "amount_usd_where_usd", "(amount_usd IS NULL) = (metric <> 'usd')"),
        _check("limits", "amount_range", "amount BETWEEN 0 AND 999999999999999999"),
        _check("limits", "amount_usd_range", "CAST(amount_usd AS NUMERIC) >= 0"),
        _check(
            "limits", "window_where_counted", "(\"window\" = '') = (metric = 'concurrency' OR level = 'conversation')"
        ),
        _tenant_key("limits"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
        sa.UniqueConstraint(
            "tenant_id", "level", "subject", "model", "metric", "window", name=op.f("uq_limits_tenant_id")
        ),
    )


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("period", sa.String(20), nullable=False),
        sa.Column("amount_usd", sa.String(40), nullable=True),
        sa.Column("gpu_milliseconds", sa.BigInteger(), nullable=True),
        sa.Column("is_hard", sa.Boolean(), nullable=False),
        sa.Column("thresholds", sa.JSON(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("webhook_url", sa.String(500), nullable=False),
        sa.Column("when_away", sa.String(20), nullable=False),
        sa.Column("when_unpriced", sa.String(20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _check("budgets", "level_known", f'"level" IN ({_LEVELS})'),
        _check("budgets", "period_known", "\"period\" IN ('day', 'week', 'month', 'total')"),
        _check("budgets", "when_away_known", "\"when_away\" IN ('share', 'refuse')"),
        _check("budgets", "when_unpriced_known", "\"when_unpriced\" IN ('refuse', 'allow')"),
        _check("budgets", "one_amount", "(amount_usd IS NULL) <> (gpu_milliseconds IS NULL)"),
        _check("budgets", "amount_usd_positive", "CAST(amount_usd AS NUMERIC) > 0"),
        _check("budgets", "gpu_milliseconds_range", "gpu_milliseconds BETWEEN 1 AND 999999999999"),
        _check("budgets", "ends_after_start", "ends_at > starts_at"),
        _tenant_key("budgets"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    op.create_index("ix_budgets_tenant_id", "budgets", ["tenant_id"])


def _create_states() -> None:
    op.create_table(
        "budget_states",
        sa.Column("budget_id", sa.String(63), nullable=False),
        sa.Column("period_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("gateway", sa.String(200), nullable=False),
        sa.Column("settled", sa.String(40), nullable=False),
        sa.Column("reserved", sa.String(40), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _budget_key("budget_states"),
        sa.PrimaryKeyConstraint("budget_id", "period_start", "subject", "gateway", name=op.f("pk_budget_states")),
    )


def _create_events() -> None:
    op.create_table(
        "budget_events",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("budget_id", sa.String(63), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("period_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("threshold_percent", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amount", sa.String(40), nullable=False),
        sa.Column("spent", sa.String(40), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.String(200), nullable=False),
        _budget_key("budget_events"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budget_events")),
        sa.UniqueConstraint(
            "budget_id", "subject", "period_start", "threshold_percent", name=op.f("uq_budget_events_budget_id")
        ),
    )
    op.create_index("ix_budget_events_next_attempt_at", "budget_events", ["next_attempt_at"])


def _create_first_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("period", sa.String(20), nullable=False),
        sa.Column("amount_usd", sa.String(40), nullable=True),
        sa.Column("gpu_milliseconds", sa.BigInteger(), nullable=True),
        sa.Column("is_hard", sa.Boolean(), nullable=False),
        sa.Column("thresholds", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _tenant_key("budgets"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )


def _create_first_limits() -> None:
    op.create_table(
        "limits",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("metric", sa.String(30), nullable=False),
        sa.Column("window", sa.String(20), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _tenant_key("limits"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
    )
