"""Objectives, alert rules, channels, silences, alerts, deliveries, holds and leases.

Why: what is promised, who is told when it is in danger, and what was sent, so that nothing is sent twice. Undo:
`downgrade` makes `slos` and `alerts` as 0001 did, empty, and drops the others. Locks: nothing waits; no earlier version
could write to the two tables that are made again.

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None

_NEW = (
    "leases",
    "alert_deliveries",
    "alerts",
    "alert_silences",
    "alert_channels",
    "alert_rules",
    "policy_holds",
    "slos",
)


def upgrade() -> None:
    """Drop the two first tables, which are empty, and make those that take their place."""
    op.drop_table("alerts")
    op.drop_table("slos")
    _create_promises()
    _create_rules()
    _create_log()
    op.create_table(
        "leases",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        _moment("expires_at"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )


def downgrade() -> None:
    """Drop what `upgrade` made, and make the two tables as 0001 did."""
    for table in _NEW:
        op.drop_table(table)
    op.create_table(
        "slos",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("indicator", sa.String(30), nullable=False),
        sa.Column("threshold_ms", sa.Float(), nullable=True),
        sa.Column("target", sa.Float(), nullable=False),
        sa.Column("window_days", sa.Integer(), nullable=False),
        sa.Column("match", sa.JSON(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slos")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("rule", sa.JSON(), nullable=False),
        sa.Column("channel", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )


def _moment(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _create_promises() -> None:
    op.create_table(
        "slos",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("route", sa.String(200), nullable=False),
        sa.Column("prompt_class", sa.String(20), nullable=False),
        sa.Column("indicator", sa.String(20), nullable=False),
        sa.Column("thresholds_ms", sa.JSON(), nullable=False),
        sa.Column("target_percent", sa.String(40), nullable=False),
        sa.Column("window_days", sa.Integer(), nullable=False),
        sa.Column("min_events", sa.Integer(), nullable=False),
        sa.Column("hooks", sa.JSON(), nullable=False),
        _moment("created_at"),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slos")),
    )
    op.create_index("ix_slos_tenant_id", "slos", ["tenant_id"])
    op.create_table(
        "policy_holds",
        sa.Column("slo_id", sa.String(63), nullable=False),
        sa.Column("hook", sa.String(30), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        _moment("since"),
        sa.Column("reason", sa.String(300), nullable=False),
        sa.PrimaryKeyConstraint("slo_id", "hook", name=op.f("pk_policy_holds")),
    )


def _create_rules() -> None:
    op.create_table(
        "alert_rules",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(30), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("channels", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        _moment("created_at"),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_rules")),
    )
    op.create_index("ix_alert_rules_tenant_id", "alert_rules", ["tenant_id"])
    op.create_table(
        "alert_channels",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("address", sa.String(500), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_channels")),
    )
    op.create_index("ix_alert_channels_tenant_id", "alert_channels", ["tenant_id"])
    op.create_table(
        "alert_silences",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("rule_id", sa.String(63), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        _moment("starts_at"),
        _moment("ends_at"),
        sa.Column("comment", sa.String(200), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_silences")),
    )
    op.create_index("ix_alert_silences_tenant_id", "alert_silences", ["tenant_id"])


def _create_log() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("rule_id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(30), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("fingerprint", sa.String(400), nullable=False),
        sa.Column("open_key", sa.String(500), nullable=False),
        sa.Column("severity", sa.String(10), nullable=False),
        sa.Column("summary", sa.String(500), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        _moment("opened_at"),
        _moment("last_seen_at"),
        _moment("resolved_at", nullable=True),
        _moment("notified_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("open_key", name=op.f("uq_alerts_open_key")),
    )
    op.create_index("ix_alerts_tenant_id", "alerts", ["tenant_id", "opened_at"])
    op.create_index("ix_alerts_rule_id", "alerts", ["rule_id", "resolved_at"])
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("channel_id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("event", sa.String(10), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        _moment("created_at"),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        _moment("next_attempt_at", nullable=True),
        _moment("ended_at", nullable=True),
        sa.Column("last_error", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_deliveries")),
    )
    op.create_index("ix_alert_deliveries_next_attempt_at", "alert_deliveries", ["next_attempt_at"])
    op.create_index("ix_alert_deliveries_tenant_id", "alert_deliveries", ["tenant_id", "created_at"])
