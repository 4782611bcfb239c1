"""`tollkeeper store rebuild`: a rollup is what its base makes of it again, beside traffic, and twice is once."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.store.columns import arrow_batch
from backends.store.store_locks import StoreLocks
from contracts.recording.names import REQUESTS
from tests.tollkeeper.test_store_check import DAMAGES, check, fill, request
from tollkeeper.cli import app

FILLED_BY_REQUESTS = (
    "requests_minute", "requests_hour", "requests_day", "latency_day", "indicators_minute", "tenant_cost_day",
    "tenant_model_day", "tenant_hour", "model_hour", "model_latency_day", "indicators_hour",
)  # fmt: skip
DAMAGED = {
    "requests_hour": DAMAGES["rollup_differs requests_hour"],
    "latency_day": DAMAGES["rollup_differs latency_day"],
    "distinct_values": DAMAGES["rollup_differs distinct_values"],
    "tenant_cost_day": "INSERT INTO tenant_cost_day SELECT * FROM tenant_cost_day SETTINGS insert_deduplicate = 0",
    "indicators_minute": "TRUNCATE TABLE indicators_minute",
    "requests_recent": "INSERT INTO requests_recent SELECT * FROM requests_recent LIMIT 1 "
    "SETTINGS insert_deduplicate = 0",
}


@pytest.fixture
def installation(other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    for name, value in other_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", f"sqlite:///{tmp_path / 'control.db'}")
    return other_store


@pytest.fixture
def filled(installation: Any) -> Any:
    fill(installation)
    return installation


def rebuild(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", "rebuild", *arguments])


@pytest.mark.parametrize("rollup", ["requests_hour", "latency_day", "distinct_values", "indicators_minute"])
def test_a_damaged_rollup_is_shown_then_repaired_and_then_sound(
    filled: Any, rollup: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = filled.client()
    client.command(DAMAGED[rollup])
    shown = rebuild(rollup, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "partition " in shown.output
    assert "not applied" in shown.output
    _, before = check(filled, monkeypatch, tmp_path)
    assert rollup in [finding["where"] for finding in before["findings"]], "a dry run changes nothing"
    done = rebuild(rollup, "--yes")
    assert done.exit_code == 0, done.output
    assert f"rebuilt {rollup} from " in done.output
    _, between = check(filled, monkeypatch, tmp_path)
    derived = re.findall(r"\w+", done.output.partition("derived from it, rebuild these next:")[2])
    assert {finding["where"] for finding in between["findings"]} <= set(derived), "they took the damage too"
    for name in derived:
        assert rebuild(name, "--yes").exit_code == 0
    status, after = check(filled, monkeypatch, tmp_path)
    assert (status, after["findings"]) == (0, [])
    again = rebuild(rollup, "--yes")
    assert "nothing to correct" in again.output
    client.close()


def test_what_a_rebuild_would_change_is_told_in_figures(filled: Any) -> None:
    client = filled.client()
    client.command(DAMAGED["tenant_cost_day"])
    (row,) = client.query("SELECT sum(requests) AS n FROM tenant_cost_day")
    (change,) = json.loads(rebuild("tenant_cost_day", "--json").stdout)["changes"]
    (requests,) = [one for one in change["sums"] if one["column"] == "requests"]
    assert requests == {"column": "requests", "stored": str(row["n"]), "rebuilt": "7"}
    client.close()


@pytest.mark.drill
def test_rebuilds_beside_inserts_lose_and_double_nothing(
    filled: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns, ended, inserted = StoreLocks(filled.data), threading.Event(), 0

    def insert() -> None:
        nonlocal inserted
        writer = filled.client()
        while not ended.is_set():
            rows = arrow_batch(REQUESTS, [request(100 + inserted), request(400 + inserted)])
            with turns.turn() as settle:
                writer.insert_arrow("requests", rows, deduplication_token=f"beside-{inserted}")
                settle()
            inserted += 1
        writer.close()

    client = filled.client()
    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for rollup in ("requests_hour", "tenant_cost_day", "indicators_minute", "requests_recent"):
            client.command(DAMAGED[rollup])
            done = rebuild(rollup, "--yes")
            assert done.exit_code == 0, done.output
    finally:
        ended.set()
        thread.join()
    for rollup in (
        "requests_day", "tenant_cost_day", "tenant_model_day", "tenant_hour", "model_hour", "indicators_hour",
        "model_steps_hour", "model_steps_day",
    ):  # fmt: skip
        assert rebuild(rollup, "--yes").exit_code == 0
    for table in FILLED_BY_REQUESTS:
        assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": 7 + 2 * inserted}], table
    _, found = check(filled, monkeypatch, tmp_path)
    assert [finding for finding in found["findings"] if finding["kind"] == "rollup_differs"] == []
    client.close()


def test_rows_whose_base_was_deleted_by_a_tenants_retention_stay(filled: Any) -> None:
    client = filled.client()
    client.command(
        "INSERT INTO retention (table_name, tenant, keep_seconds, deleted_before) VALUES "
        "('requests', 'gone', 86400, now() - INTERVAL 1 DAY)"
    )
    client.command(
        "INSERT INTO requests_hour (bucket, tenant, requests) VALUES (toStartOfHour(now() - INTERVAL 2 DAY), 'gone', 5)"
    )
    client.command(DAMAGED["requests_hour"])
    assert rebuild("requests_hour", "--yes").exit_code == 0
    assert client.query("SELECT sum(requests) AS n FROM requests_hour WHERE tenant = 'gone'") == [{"n": 5}]
    assert client.query("SELECT sum(requests) AS n FROM requests_hour WHERE tenant = 'acme'") == [{"n": 7}]
    client.close()


def test_a_rebuild_is_refused_while_a_batch_is_in_doubt(filled: Any) -> None:
    client = filled.client()
    client.command(DAMAGED["requests_hour"])
    plan = rebuild("requests_hour", "--dry-run")
    assert plan.exit_code == 0
    with StoreLocks(filled.data).turn():  # not settled
        pass
    try:
        refused = rebuild("requests_hour", "--yes")
        assert refused.exit_code == 2
        assert "ended in the middle of a batch" in refused.output
    finally:
        with StoreLocks(filled.data).turn() as settle:
            settle()
    client.close()


def test_all_rollups_are_listed_with_their_sources(installation: Any) -> None:
    listed = json.loads(rebuild("--list", "--json").stdout)
    pairs = {one["rollup"]: one["source"] for one in listed}
    assert pairs["tenant_cost_day"] == "requests_day"
    assert pairs["engine_minutes"] == "engine_steps"
    names = [one["rollup"] for one in listed]
    assert names.index("requests_day") < names.index("tenant_cost_day"), "sources come first"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("requests_our",), "did you mean requests_hour?"),
        (("requests",), "is not a rollup of this store"),
        ((), "name one rollup"),
        (("requests_hour", "--list"), "name one rollup"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_in_one_line(
    installation: Any, arguments: tuple[str, ...], says: str
) -> None:
    refused = rebuild(*arguments)
    assert refused.exit_code == 2
    assert says in " ".join(refused.output.split())
