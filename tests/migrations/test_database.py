"""The control database's migrations: they make what the declarations say, on both databases, and can be undone."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, CheckConstraint, inspect, text

from backends.control.database import ControlDatabase
from contracts.control import SCHEMA_HEAD, Base
from contracts.errors import ConfigurationError, ControlUnavailable, NewerSchema
from migrations.database import alembic_config, migrate_database
from tests import warm_start


def differs(
    context: MigrationContext, found_column: Any, declared_column: Any, found: str | None, declared: Any, rendered: str
) -> bool | None:
    """Return whether a JSON column's default differs, which PostgreSQL cannot compare itself; None for other types."""
    if not isinstance(declared_column.type, JSON) or found is None or rendered is None:
        return None
    return found.split("::")[0].strip("'") != rendered.strip("'")


def test_the_migrated_tables_are_the_declared_ones(control_database: ControlDatabase) -> None:
    with control_database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": differs})
        assert compare_metadata(context, Base.metadata) == []


def test_the_migrated_tables_check_what_the_declared_ones_check(control_database: ControlDatabase) -> None:
    inspector = inspect(control_database.engine)
    for name, table in Base.metadata.tables.items():
        declared = {constraint.name for constraint in table.constraints if isinstance(constraint, CheckConstraint)}
        assert {check["name"] for check in inspector.get_check_constraints(name)} == declared, name


def test_the_code_knows_the_last_revision() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())
    assert scripts.get_current_head() == SCHEMA_HEAD
    assert sorted(script.revision for script in scripts.walk_revisions()) == [
        f"{number:04}" for number in range(1, int(SCHEMA_HEAD) + 1)
    ]


def test_the_revision_counter_is_there_from_the_start(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        assert session.execute(text("SELECT id, number FROM revision")).all() == [(1, 0)]


def test_migrating_again_changes_nothing(control_database_url: str) -> None:
    lines: list[str] = []
    migrate_database(control_database_url, say=lines.append)
    assert lines == [f"control: at head ({SCHEMA_HEAD})"]


def test_every_step_is_said(tmp_path: Path) -> None:
    lines: list[str] = []
    migrate_database(f"sqlite:///{tmp_path}/made/for/it/control.db", say=lines.append)
    assert lines == [f"control: applied {number:04}" for number in range(1, int(SCHEMA_HEAD) + 1)]


def test_all_of_it_can_be_undone(control_database: ControlDatabase) -> None:
    config = alembic_config()
    config.attributes["database"] = control_database
    command.downgrade(config, "base")
    with control_database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    command.upgrade(config, "head")
    control_database.check_schema()


def test_migrations_at_the_same_time_do_not_get_into_each_others_way(
    control_database: ControlDatabase, control_database_url: str
) -> None:
    config = alembic_config()
    config.attributes["database"] = control_database
    command.downgrade(config, "base")
    environment = os.environ | {"TOLLKEEPER_DATABASE_URL": control_database_url}
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(warm_start.run, "migrations", "--only", "control", env=environment) for _ in range(3)]
    assert [(one.result().stderr, one.result().returncode) for one in running] == [("", 0)] * 3
    control_database.check_schema()


def test_a_newer_database_is_left_alone(control_database: ControlDatabase, control_database_url: str) -> None:
    with control_database.session() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerSchema, match="is at revision 9999"):
        migrate_database(control_database_url, say=lambda line: None)
    assert control_database.revision() == "9999"


def test_an_unreachable_database_is_unavailable(free_ports: Any) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ControlUnavailable, match="does not answer"):
        migrate_database(f"postgresql://127.0.0.1:{port}/tollkeeper", say=lambda line: None)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="choose a writable data directory"):
        migrate_database(f"sqlite:///{tmp_path}/file/control.db", say=lambda line: None)
