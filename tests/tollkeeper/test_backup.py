"""`tollkeeper backup` while a store is written to, and `tollkeeper restore` elsewhere: every table equal."""

import json
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.audit.chain import AuditChain
from backends.audit.options import audit_root
from backends.audit.places import chain_directories, segment_names
from backends.audit.signing import AuditSigner
from backends.control.archive import digest_control, load_control, write_control
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_team, create_tenant
from backends.secrets.secret_files import SecretFiles
from backends.store.columns import arrow_batch
from backends.store.digests import digest_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import list_tables
from contracts.access.identity import Identity
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from migrations.database import migrate_database
from tollkeeper.cli import app

AUTHOR = Author("ada", datetime(2026, 11, 1, tzinfo=UTC))


class Load:
    """Writes one-row batches, turn by turn, until it is stopped."""

    def __init__(self, store: Any, data: Path) -> None:
        self.rows = 0
        self._client, self._turns = store.client(), StoreLocks(data)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._turns.turn() as settle:
                insert(self._client)
                settle()
            self.rows += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._client.close()


def insert(client: Any) -> None:
    now = time.time_ns()
    record = RequestRecord(
        request_id=uuid7(now).bytes,
        started_at_ns=now,
        duration_ns=1,
        who=Identity("acme", user="ada", tags={"a": "1"}),
        model="tiny",
        cost_pico_usd=7,
        ttft_ns=5,
    )
    client.insert_arrow("requests", arrow_batch(REQUESTS, [record]), deduplication_token=str(uuid7(now)))


def run(store: Any, monkeypatch: pytest.MonkeyPatch, database_url: str, *arguments: str) -> Result:
    for name, value in store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", database_url)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.service
@pytest.mark.drill
def test_a_backup_under_load_is_restored_equal(
    migrated_sqlite: Path,
    postgres: Any,
    empty_store: Any,
    other_store: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control_database_url = f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'control.db')}"
    elsewhere = postgres.create_database()
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        create_tenant(session, AUTHOR, "acme", "Acme, 'quoted' and √", weight=3)
        create_team(session, AUTHOR, "acme", "core", "Core")
    database.close()
    writer = empty_store.client()
    insert(writer)
    writer.close()
    chain = AuditChain(audit_root(empty_store.data) / "gateway", "gw:1", AuditSigner.of(SecretFiles(tmp_path)))
    load = Load(empty_store, empty_store.data)
    try:
        made = run(empty_store, monkeypatch, control_database_url, "backup", str(tmp_path / "copy"), "--json")
    finally:
        load.stop()
        chain.close()
        shutil.rmtree(chain.directory)
    assert made.exit_code == 0, made.output
    backup = json.loads(made.stdout)
    rows = backup["store"]["tables"]["requests"]["rows"]
    assert 1 <= rows <= load.rows + 1

    early = run(other_store, monkeypatch, elsewhere, "restore", str(tmp_path / "copy"))
    assert early.exit_code == 2 and "audit_signing_key is missing" in early.stderr
    shutil.copy(tmp_path / "audit_signing_key", other_store.data / "secrets" / "audit_signing_key")
    restored = run(other_store, monkeypatch, elsewhere, "restore", str(tmp_path / "copy"))
    assert restored.exit_code == 1 and "no chain confirms" in restored.stderr, "no control plane has run here yet"
    assert "every table has the rows and the checksum" in restored.stdout
    assert backup["audit"] == ["gateway"]
    (kept,) = chain_directories(audit_root(other_store.data))
    assert kept.name.startswith("gateway.restored-") and segment_names(kept)
    shutil.rmtree(kept)

    (tmp_path / "back").mkdir()
    client, copy = other_store.client(), ControlDatabase(elsewhere)
    try:
        for table in list_tables(client):
            wanted = backup["store"]["tables"][table.name]
            found = digest_of(client, table)
            assert (found.rows, f"{found.checksum:016x}") == (wanted["rows"], wanted["checksum"]), table.name
        (rolled,) = client.query("SELECT sum(requests) AS rows FROM requests_day")
        assert rolled["rows"] == rows, "the rollups are of another moment than their base"
        found_rows = {name: (of.rows, of.checksum) for name, of in digest_control(copy).items()}
        wanted_rows = {name: (of["rows"], of["checksum"]) for name, of in backup["control"]["tables"].items()}
        assert found_rows == wanted_rows
        with copy.session() as session:  # numbers that the database draws go on after those restored
            create_tenant(session, AUTHOR, "later", "Later")
        back = ControlDatabase(f"sqlite:///{tmp_path / 'back.db'}")
        migrate_database(f"sqlite:///{tmp_path / 'back.db'}", say=lambda line: None)
        load_control(back, tmp_path / "back", write_control(copy, tmp_path / "back", print), print)
        assert digest_control(back) == digest_control(copy), "what PostgreSQL gives is not what SQLite takes"
        back.close()
    finally:
        client.close()
        copy.close()

    again = run(other_store, monkeypatch, elsewhere, "restore", str(tmp_path / "copy"))
    assert again.exit_code == 2 and "has rows in" in again.stderr


def test_a_damaged_backup_is_not_taken_in(
    migrated_sqlite: Path, empty_store: Any, other_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'control.db')}"
    writer = empty_store.client()
    insert(writer)
    writer.close()
    copy = tmp_path / "copy"
    assert run(empty_store, monkeypatch, url, "backup", str(copy)).exit_code == 0
    assert oct(copy.stat().st_mode)[-3:] == "700"
    taken = run(empty_store, monkeypatch, url, "backup", str(copy))
    assert taken.exit_code == 2 and "exists already" in taken.stderr

    manifest = copy / "backup.json"
    text = manifest.read_text()
    checksum = json.loads(text)["store"]["tables"]["requests"]["checksum"]
    manifest.write_text(text.replace(checksum, f"{int(checksum, 16) ^ 1:016x}"))
    refused = run(other_store, monkeypatch, f"sqlite:///{tmp_path / 'new.db'}", "restore", str(copy))
    assert refused.exit_code == 2 and "the copy of requests has 1 rows" in refused.stderr
    client = other_store.client()
    assert client.query("SELECT count() AS rows FROM requests") == [{"rows": 0}]
    client.close()

    (copy / "backup.json").unlink()
    missing = run(other_store, monkeypatch, f"sqlite:///{tmp_path / 'newer.db'}", "restore", str(copy))
    assert missing.exit_code == 2 and "is not a backup" in missing.stderr
