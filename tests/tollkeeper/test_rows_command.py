"""`tollkeeper rows`: what cannot be read is listed, repaired and deleted from a terminal."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from typer.testing import CliRunner, Result

from tollkeeper.cli import app


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data", str(data)])


def test_an_unreadable_row_is_listed_repaired_and_deleted(data: Path) -> None:
    assert run(data, "tenants", "create", "acme", "--name", "Acme").exit_code == 0
    assert run(data, "keys", "create", "--tenant", "acme", "--name", "bot").exit_code == 0
    assert "all rows can be read" in run(data, "rows", "list").stdout
    with closing(sqlite3.connect(data.parent / "control.db")) as database, database:
        assert database.execute("UPDATE tenants SET created_at = 'then' WHERE id = 'acme'").rowcount == 1
    listed = run(data, "tenants", "list", "--json")
    assert listed.exit_code == 0 and "acme" not in listed.stdout and json.loads(listed.stdout)
    assert "row acme of tenants is not shown" in listed.stderr and "tollkeeper rows list" in listed.stderr
    (found,) = json.loads(run(data, "rows", "list", "--json").stdout)
    assert (found["table"], found["id"], found["column"], found["stored"]) == ("tenants", "acme", "created_at", "then")
    wrong = run(data, "rows", "repair", "tenants", "acme", "--set", "created_at=now")
    assert wrong.exit_code == 2 and "created_at" in wrong.stderr
    assert run(data, "rows", "repair", "tenants", "acme", "--set", "created_at").exit_code == 2
    done = run(data, "rows", "repair", "tenants", "acme", "--set", "created_at=2026-11-01T00:00:00+00:00")
    assert done.exit_code == 0, done.stderr
    assert "acme" in run(data, "tenants", "list", "--json").stdout
    gone = run(data, "rows", "delete", "tenants", "acme")
    assert gone.exit_code == 2 and "no row" in gone.stderr


def test_a_target_is_named_by_its_pool_and_id(data: Path) -> None:
    with closing(sqlite3.connect(data.parent / "control.db")) as database, database:
        pool, target = database.execute("SELECT pool_id, id FROM targets").fetchone()
        database.execute("UPDATE targets SET settings = '{' WHERE pool_id = ? AND id = ?", (pool, target))
    done = run(data, "rows", "repair", "targets", f"{pool}/{target}", "--set", "settings={}")
    assert done.exit_code == 0, done.stderr
    assert json.loads(run(data, "rows", "list", "--json").stdout) == []
