"""The embedded store as a process: how it starts, who it lets in, how it refuses, how it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from contracts.errors import StoreRefused


def ask(store: Any, query: str, user: str | None = None, password: str = "") -> tuple[int, str]:
    """Ask over plain HTTP, as anyone on this machine could."""
    credentials = {} if user is None else {"user": user, "password": password}
    url = f"{store.url}/?{urllib.parse.urlencode(credentials)}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=query.encode()), timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def run_store(store: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a store that is expected to refuse."""
    command = [sys.executable, "-m", "backends.store"]
    return subprocess.run(
        command, env={**store.environment, **changes}, capture_output=True, text=True, timeout=30, check=False
    )


def wait_until_ready(store: Any) -> None:
    deadline = time.monotonic() + 10
    while "store listening" not in store.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_prompt_and_clean(new_store: Any, signal_number: int) -> None:
    new_store.start()
    wait_until_ready(new_store)
    started = time.monotonic()
    assert new_store.stop(signal_number) == 0
    assert time.monotonic() - started < 5
    assert "store stopped seconds=" in new_store.log.read_text()


def test_a_store_that_was_frozen_goes_on_in_the_same_process(new_store: Any) -> None:
    new_store.start()
    wait_until_ready(new_store)
    for _ in range(2):
        new_store.process.send_signal(signal.SIGSTOP)
        time.sleep(0.6)  # longer than any wait for a stop signal
        new_store.process.send_signal(signal.SIGCONT)
        time.sleep(0.6)
        assert new_store.process.poll() is None, new_store.log.read_text()
    assert ask(new_store, "SELECT 1", "reader", new_store.address("reader").password) == (200, "1\n")
    assert new_store.stop() == 0
    assert "store stopped seconds=" in new_store.log.read_text()


def test_a_stop_signal_sent_to_a_frozen_store_stops_it_once_it_goes_on(new_store: Any) -> None:
    new_store.start()
    wait_until_ready(new_store)
    new_store.process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    new_store.process.send_signal(signal.SIGTERM)
    new_store.process.send_signal(signal.SIGCONT)
    assert new_store.process.wait(30) == 0


def test_no_acknowledged_row_is_lost_when_the_store_is_killed(migrated_store: Any) -> None:
    migrated_store.start()
    client = migrated_store.client()
    acknowledged = 0
    for round_number in range(3):
        for batch in range(20):
            rows = pyarrow.table({"kind": ["test"] * 100, "value": [f"{round_number}-{batch}-{i}" for i in range(100)]})
            client.insert_arrow("distinct_values", rows, deduplication_token=f"{round_number}-{batch}")
            acknowledged += 100
        migrated_store.kill()
        started = time.monotonic()
        migrated_store.start()
        assert time.monotonic() - started < 10  # measured: under 1 s
        found = client.query("SELECT count() AS rows FROM distinct_values WHERE kind = 'test'")
        assert found == [{"rows": acknowledged}]
    client.close()


def test_nobody_gets_in_without_a_password(store: Any) -> None:
    for query in ("SELECT 1", "SYSTEM STOP LISTEN HTTP", "SELECT file('/etc/hostname')", "KILL QUERY WHERE 1"):
        for user in (None, "default"):
            status, text = ask(store, query, user)
            assert status != 200, (query, user, text)
    assert ask(store, "SELECT 1", "reader", "wrong")[0] != 200
    assert ask(store, "SELECT 1", "reader", store.address("reader").password) == (200, "1\n")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO distinct_values (kind) VALUES ('x')",
        "CREATE TABLE intruder (a UInt8) ENGINE = Memory",
        "DROP TABLE requests",
        "ALTER TABLE requests DELETE WHERE 1",
        "TRUNCATE TABLE requests",
        "SET readonly = 0",
    ],
)
def test_the_reader_can_change_nothing(store: Any, statement: str) -> None:
    client = store.client("reader")
    with pytest.raises(StoreRefused, match=r"code (497|164)"):
        client.command(statement)
    client.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE USER intruder",
        "GRANT ALL ON *.* TO writer",
        "DROP DATABASE system",
        "SELECT * FROM file('/etc/hostname', LineAsString, 'line String')",
        "SELECT * FROM url('http://127.0.0.1:1/', LineAsString, 'line String')",
        "KILL QUERY WHERE 1",
        "SYSTEM SHUTDOWN",
    ],
)
def test_the_writer_stays_within_its_database(store: Any, statement: str) -> None:
    client = store.client("writer")
    with pytest.raises(StoreRefused, match="code 497"):
        client.command(statement)
    client.close()


def test_inserts_are_synchronous_by_default(store: Any) -> None:
    for role in ("writer", "reader"):
        client = store.client(role)
        found = client.query("SELECT value FROM system.settings WHERE name = 'async_insert'")
        assert found == [{"value": "0"}]
        client.close()


def test_passwords_are_kept_as_digests_in_private_files(store: Any) -> None:
    config = store.data / "store" / "config"
    for name in ("config.xml", "users.xml"):
        assert (config / name).stat().st_mode & 0o777 == 0o600
        text = (config / name).read_text()
        assert not any(store.address(role).password in text for role in ("writer", "reader", "supervisor"))


@pytest.mark.parametrize("variable", ["TOLLKEEPER_STORE_HTTP_PORT", "TOLLKEEPER_STORE_NATIVE_PORT"])
def test_a_port_in_use_is_named_in_one_line(new_store: Any, variable: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        refused = run_store(new_store, **{variable: str(port)})
    assert refused.returncode == 2
    assert refused.stderr == f"store: port {port} on 127.0.0.1 is in use; free it or set {variable}\n"


def test_a_directory_in_use_is_named_in_one_line(store: Any, new_store: Any) -> None:
    refused = run_store(new_store, TOLLKEEPER_DATA=str(store.data))
    assert refused.returncode == 2
    directory = store.data / "store" / "data"
    assert refused.stderr == (
        f"store: the store directory {directory} is in use by another store process; stop it or choose another --data\n"
    )


def test_an_unwritable_directory_is_named_in_one_line(new_store: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # a file in a directory's place stops even root
    refused = run_store(new_store, TOLLKEEPER_DATA=str(tmp_path / "file" / "data"))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "choose a writable data directory" in refused.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TOLLKEEPER_STORE_HTTP_PORT", "0"),
        ("TOLLKEEPER_STORE_HTTP_PORT", "65536"),
        ("TOLLKEEPER_STORE_DATABASE", "a`b"),
        ("TOLLKEEPER_STORE_MEMORY_BYTES", "1000"),
    ],
)
def test_an_unusable_setting_is_named_in_one_line(new_store: Any, variable: str, value: str) -> None:
    refused = run_store(new_store, **{variable: value})
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"store: {variable}: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        ("raise ImportError('no engine')", "needs chdb, which cannot be imported"),
        ("from types import SimpleNamespace as S; _chdb = S()", "has no engine binding `_chdb.query`"),
        (
            "from types import SimpleNamespace as S\n"
            "answer = S(has_error=lambda: True, error_message=lambda: 'start_servers_callback is not set')\n"
            "_chdb = S(query=lambda *a, **k: answer)",
            "could not listen: start_servers_callback is not set",
        ),
    ],
)
def test_an_engine_that_cannot_listen_is_explained(new_store: Any, tmp_path: Path, fake: str, words: str) -> None:
    (tmp_path / "fake" / "chdb").mkdir(parents=True)
    (tmp_path / "fake" / "chdb" / "__init__.py").write_text(fake)
    search = os.pathsep.join([str(tmp_path / "fake"), os.environ.get("PYTHONPATH", "")])
    refused = run_store(new_store, PYTHONPATH=search)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "or set TOLLKEEPER_STORE_URL to a ClickHouse server" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_it_listens_where_it_is_told_to(new_store: Any, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(new_store), "environment", {**new_store.environment, "TOLLKEEPER_HOST": host})
    new_store.start()
    wait_until_ready(new_store)
    assert ask(new_store, "SELECT 1", "reader", new_store.address("reader").password) == (200, "1\n")
    assert ask(new_store, "SELECT 1")[0] != 200


def test_a_host_that_is_not_ours_is_named_in_one_line(new_store: Any) -> None:
    refused = run_store(new_store, TOLLKEEPER_HOST="203.0.113.1")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"store: cannot listen on 203.0.113.1:{new_store.http_port} (")
    assert refused.stderr.endswith("; set TOLLKEEPER_HOST or TOLLKEEPER_STORE_HTTP_PORT\n")
