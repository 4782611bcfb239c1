"""`python -m migrations` as people and supervisors run it."""

import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from backends.store.store_locks import StoreLocks
from contracts.control import SCHEMA_HEAD
from contracts.errors import ConfigurationError
from migrations.store import read_migrations
from tests import warm_start


def run(store: Any, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    return warm_start.run("migrations", *arguments, env={**store.environment, **changes})


def test_both_come_to_head_and_stay_there_though_a_batch_is_in_doubt(new_store: Any) -> None:
    new_store.start()
    with StoreLocks(new_store.data).turn():  # of a store that is lost: nothing of it is here to be copied
        pass
    first = run(new_store)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines() == [
        *(f"control: applied {number:04}" for number in range(1, int(SCHEMA_HEAD) + 1)),
        *(f"store: applied {migration.label}" for migration in read_migrations()),
    ]
    again = run(new_store)
    assert again.stdout.splitlines() == [
        f"control: at head ({SCHEMA_HEAD})",
        f"store: at head ({read_migrations()[-1].label})",
    ]


@pytest.mark.drill
def test_it_waits_for_a_store_that_is_starting(new_store: Any) -> None:
    command = [sys.executable, "-m", "migrations", "--only", "store"]
    new_store.data.mkdir()
    with subprocess.Popen(command, env=new_store.environment, stdout=subprocess.PIPE, text=True) as waiting:
        new_store.start()
        output, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "store: applied 0001_requests" in output


def test_an_unreachable_store_is_one_line(new_store: Any) -> None:
    refused = run(new_store, "--only", "store", TOLLKEEPER_STORE_WAIT_SECONDS="0.1")
    assert refused.returncode == 2
    assert refused.stderr == (
        f"migrations: the store at {new_store.url} does not answer; is it running? (TOLLKEEPER_STORE_URL)\n"
    )


def test_one_can_be_left_alone(new_store: Any) -> None:
    only_control = run(new_store, "--only", "control")
    applied = "".join(f"control: applied {number:04}\n" for number in range(1, int(SCHEMA_HEAD) + 1))
    assert (only_control.returncode, only_control.stdout) == (0, applied)


def test_bad_settings_are_one_line(new_store: Any) -> None:
    for variable, value in {
        "TOLLKEEPER_DATABASE_URL": "mysql://host/name",
        "TOLLKEEPER_STORE_WAIT_SECONDS": "-1",
        "TOLLKEEPER_STORE_URL": "nonsense",
    }.items():
        refused = run(new_store, **{variable: value})
        assert refused.returncode == 2
        assert refused.stderr.startswith("migrations: ") and variable in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_a_control_database_that_is_gone_is_said_once(new_store: Any) -> None:
    assert run(new_store, "--only", "control").returncode == 0
    (new_store.data / "control.db").unlink()
    again = run(new_store, "--only", "control")
    assert again.returncode == 0 and "control.db was missing" in again.stderr
    assert run(new_store, "--only", "control").stderr == ""


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_store_of_a_newer_release_is_refused_before_anything_is_written(
    migrated_store: Any, arguments: tuple[str, ...]
) -> None:
    migrated_store.start()
    client = migrated_store.client()
    client.command("INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, 'of_later', 'x')")
    refused = run(migrated_store, *arguments)
    assert refused.returncode == 2
    assert "9999_of_later" in refused.stderr
    assert "install the version that migrated it" in refused.stderr
    assert not (migrated_store.data / "control.db").exists()
    client.close()


def test_a_control_database_of_a_newer_release_is_refused_before_the_store_is_touched(new_store: Any) -> None:
    new_store.start()
    assert run(new_store, "--only", "control").returncode == 0
    database = sqlite3.connect(new_store.data / "control.db")
    database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.commit()
    database.close()
    refused = run(new_store)
    assert refused.returncode == 2
    assert "revision 9999" in refused.stderr
    client = new_store.client()
    with pytest.raises(ConfigurationError, match="the database is missing"):
        client.query("SHOW TABLES")
    client.close()


def test_checking_what_can_be_migrated_changes_nothing(new_store: Any) -> None:
    new_store.start()
    checked = run(new_store, "--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert not (new_store.data / "control.db").exists()
