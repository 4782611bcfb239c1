"""The door to the control database: one behaviour over SQLite and PostgreSQL, and clear words when it is shut."""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, text

from backends.control.database import ControlDatabase, database_url
from contracts.control import SCHEMA_HEAD, Team, Tenant
from contracts.errors import ConfigurationError, Conflict, ControlUnavailable, NewerSchema

NOW = datetime(2026, 11, 3, 12, 0, 0, 123456, tzinfo=UTC)


def tenant(name: str) -> Tenant:
    return Tenant(id=name, name=name, created_at=NOW)


def test_a_block_that_ends_is_kept_and_one_that_raises_is_not(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        session.add(tenant("acme"))
    with pytest.raises(RuntimeError), control_database.session() as session:
        session.add(tenant("globex"))
        session.flush()
        raise RuntimeError
    with control_database.session() as session:
        assert session.scalars(select(Tenant.id)).all() == ["acme"]
        assert session.scalars(select(Tenant.created_at)).one() == NOW


def test_clashes_are_conflicts(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        session.add(tenant("acme"))
    with pytest.raises(Conflict), control_database.session() as session:
        session.add(tenant("acme"))
    with pytest.raises(Conflict), control_database.session() as session:
        session.add(Team(tenant_id="nobody", id="team", name="", created_at=NOW))  # foreign keys are enforced


def test_two_writers_take_turns(control_database: ControlDatabase) -> None:
    with control_database.session() as first:
        first.add(tenant("acme"))
    with control_database.session() as reader:
        assert reader.scalars(select(Tenant.id)).all() == ["acme"]
        with control_database.session() as writer:  # a reader in the middle of its work does not hold a writer up
            writer.add(tenant("globex"))
        assert control_database.is_healthy()


def test_a_session_that_outlives_the_closing_leaves_no_connection_open(control_database: ControlDatabase) -> None:
    control_database.close()  # what is pooled already is not counted
    counts: Counter[str] = Counter()
    for happening in ("connect", "close"):
        event.listen(control_database.engine, happening, lambda *_, name=happening: counts.update([name]))
    with control_database.session() as session:
        assert session.scalar(text("SELECT 1")) == 1
        control_database.close()
        assert session.scalar(text("SELECT 1")) == 1 and counts == {"connect": 1}
    assert counts == {"connect": 1, "close": 1}
    for _ in range(2):  # whoever asks later is served, and leaves nothing either
        assert control_database.is_healthy() and counts["connect"] == counts["close"]


def test_what_is_written_beside_processes_that_come_and_go_is_seen_by_all(tmp_path: Path) -> None:
    """A process that ends takes the log of changes away if it believes that nobody else has the file open."""
    file = tmp_path / "control.db"
    first = ControlDatabase(f"sqlite:///{file}")
    with first.session() as session:
        session.execute(text("CREATE TABLE seen (number INTEGER)"))
    for number in range(3):
        second = ControlDatabase(f"sqlite:///{file}")  # another part of this process opens it, too
        assert second.is_healthy()
        count = _count_elsewhere(file)
        assert count == number, f"another process sees {count} of {number} rows"
        with first.session() as session:
            session.execute(text("INSERT INTO seen VALUES (:number)"), {"number": number})
        second.close()
    assert _count_elsewhere(file) == 3
    first.close()


def _count_elsewhere(file: Path) -> int:
    code = (
        "import sys; from sqlalchemy import text; from backends.control.database import ControlDatabase\n"
        "database = ControlDatabase(f'sqlite:///{sys.argv[1]}')\n"
        "with database.session() as session: print(session.scalar(text('SELECT count(*) FROM seen')))\n"
        "database.close()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_migrated_database_passes(control_database: ControlDatabase) -> None:
    control_database.check_schema()
    assert control_database.revision() == SCHEMA_HEAD
    assert control_database.is_healthy()


@pytest.mark.parametrize("newer", [f"{int(SCHEMA_HEAD) + 1:04}", "9999", "00001", "3f2a9c"])
def test_a_newer_database_is_refused(control_database: ControlDatabase, newer: str) -> None:
    assert newer not in (SCHEMA_HEAD, "0000")
    set_revision(control_database, newer)
    with pytest.raises(NewerSchema, match=f"at revision {newer}, this version of Tollkeeper knows up to {SCHEMA_HEAD}"):
        control_database.check_schema()


def test_an_older_database_is_told_to_migrate(control_database: ControlDatabase) -> None:
    set_revision(control_database, "0000")
    with pytest.raises(ConfigurationError, match=r"run `python -m migrations`") as refused:
        control_database.check_schema()
    assert not isinstance(refused.value, NewerSchema)


def set_revision(database: ControlDatabase, revision: str) -> None:
    with database.session() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_an_empty_database_is_told_to_migrate(tmp_path: Path) -> None:
    database = ControlDatabase(f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(ConfigurationError, match=r"has no tables yet; run `python -m migrations`"):
        database.check_schema()
    database.close()


def test_an_unreachable_server_is_unavailable_and_its_password_unseen(free_ports: Any) -> None:
    (port,) = free_ports(1)
    database = ControlDatabase(f"postgresql://ada:hunter2@127.0.0.1:{port}/tollkeeper")
    with pytest.raises(ControlUnavailable, match=f"127.0.0.1:{port}") as refused:
        database.check_schema()
    assert "hunter2" not in refused.value.message
    with pytest.raises(ControlUnavailable), database.session() as session:
        session.execute(text("SELECT 1"))
    assert not database.is_healthy()
    database.close()


@pytest.mark.parametrize("damage", ["not a database", "overwritten"])
def test_a_file_that_is_no_database_is_named_with_the_remedy(
    migrated_sqlite: Path, tmp_path: Path, damage: str
) -> None:
    content = bytearray(migrated_sqlite.read_bytes())
    content[:] = b"x" * 5000 if damage == "not a database" else content[:100] + b"\xff" * (len(content) - 100)
    file = tmp_path / "control.db"
    file.write_bytes(content)
    database = ControlDatabase(f"sqlite:///{file}")
    with pytest.raises(ConfigurationError, match="is not a database or is damaged; restore it") as refused:
        database.check_schema()
    assert str(file) in refused.value.message and "python -m migrations" not in refused.value.message
    assert not database.is_healthy()
    database.close()


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    database = ControlDatabase(f"sqlite:///{tmp_path}/no/such/directory/control.db")
    with pytest.raises(ControlUnavailable):
        database.revision()
    database.close()


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///control.db", "sqlite"),
        ("postgresql://host/name", "postgresql+psycopg"),
        ("postgres://host/name", "postgresql+psycopg"),
        ("postgresql+psycopg://host/name", "postgresql+psycopg"),
    ],
)
def test_urls_find_their_driver(given: str, driver: str) -> None:
    assert database_url(given).drivername == driver


@pytest.mark.parametrize("url", ["", "control.db", "mysql://host/name", "postgresql+asyncpg://host/name"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_DATABASE_URL"):
        ControlDatabase(url)
