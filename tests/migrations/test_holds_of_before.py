"""Migration 0010: holds of before have ended, and are asked for again by the next look."""

from alembic import command
from sqlalchemy import text

from backends.control.database import ControlDatabase
from migrations.database import alembic_config

INSERT = """
INSERT INTO policy_holds (slo_id, hook, tenant_id, model, is_active, since, reason)
VALUES ('up', 'shed_batch', '', 'small', true, '2026-11-02 12:00:00+00:00', 'it burns')
"""


def test_a_hold_of_before_is_kept_and_has_ended(control_database: ControlDatabase) -> None:
    config = alembic_config()
    config.attributes["database"] = control_database
    command.downgrade(config, "0009")
    with control_database.session() as session:
        session.execute(text(INSERT))
    command.upgrade(config, "head")
    with control_database.session() as session:
        query = text("SELECT route, until = since, model FROM policy_holds WHERE until IS NOT NULL")
        assert [tuple(row) for row in session.execute(query)] == [("", True, "small")]
    command.downgrade(config, "0009")
    with control_database.session() as session:
        assert session.scalar(text("SELECT model FROM policy_holds")) == "small"
