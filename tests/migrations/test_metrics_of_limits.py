"""Migration 0028: limits survive it in both directions, and metrics that came later go when it is undone."""

from alembic import command
from sqlalchemy import text

from backends.control.database import ControlDatabase
from migrations.database import alembic_config

INSERT = """
INSERT INTO limits (id, tenant_id, level, subject, model, metric, "window", amount, when_away, when_unpriced,
    created_at, updated_at)
VALUES (:id, 'acme', 'tenant', '', '', :metric, 'minute', 5, 'share', 'refuse', '2026-01-01', '2026-01-01')
"""
TENANT = """
INSERT INTO tenants (id, name, time_zone, weight, is_active, settings, created_at)
VALUES ('acme', 'Acme', 'UTC', 1, true, '{}', '2026-01-01')
"""


def metrics(database: ControlDatabase) -> dict[str, str]:
    with database.session() as session:
        return {row.id: row.metric for row in session.execute(text("SELECT id, metric FROM limits"))}


def test_limits_stay_and_only_those_on_newer_metrics_go_with_the_downgrade(control_database: ControlDatabase) -> None:
    config = alembic_config()
    config.attributes["database"] = control_database
    with control_database.session() as session:
        session.execute(text(TENANT))
        session.execute(text(INSERT), {"id": "lim_known", "metric": "tokens"})
        session.execute(text(INSERT), {"id": "lim_newer", "metric": "joules"})
    command.downgrade(config, "0027")
    assert metrics(control_database) == {"lim_known": "tokens"}
    command.upgrade(config, "head")
    assert metrics(control_database) == {"lim_known": "tokens"}
