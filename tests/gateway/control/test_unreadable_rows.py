"""Rows with values that cannot be read: lists name them and give the others; they are repaired and deleted by name."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.control.organisation import get_tenant
from backends.control.serving import get_pool, list_pools
from backends.control.snapshot import load_snapshot
from contracts.errors import NotFound, RowUnreadable
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import AsRole, client_of

RATES = {"input_text": "0.15", "output_text": "0.60"}


@pytest.fixture(params=["sqlite"], name="control_database_url")
def _sqlite(request: pytest.FixtureRequest, founded: Callable[[str], Any], tmp_path: Path) -> str:
    """SQLite alone: PostgreSQL keeps such values from most of its columns."""
    import shutil

    made = founded("sqlite")
    shutil.copytree(made.secrets, tmp_path / "secrets")
    shutil.copytree(made.secrets.parent / "audit", tmp_path / "audit")
    shutil.copy(made.database, tmp_path / "control.db")
    return f"sqlite:///{tmp_path / 'control.db'}"


@pytest.fixture
def broken(owner: TestClient, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Two pools, models, routes, prices and so on, `good` and `bad`; provide what writes around the control plane."""
    for name in ("bad", "good"):
        done = [
            owner.post("/v1/pools", json={"id": name}),
            owner.post(f"/v1/pools/{name}/targets", json={"id": "one", "kind": "scripted"}),
            owner.post(f"/v1/pools/{name}/targets", json={"id": "two", "kind": "scripted"}),
            owner.post("/v1/models", json={"id": f"org/{name}", "pool": name}),
            owner.post("/v1/prices", json={"model": f"org/{name}", "version": f"{name}/1", "usd_per_mtok": RATES}),
            owner.post("/v1/tenants/acme/keys", json={"name": name}),
            owner.post(
                "/v1/standard-costs",
                json={"model": f"own-{name}", "version": f"own-{name}/1", "input_usd_per_mtok": "1"}
                | {"cached_input_usd_per_mtok": "1", "output_usd_per_mtok": "1"},
            ),
        ]
        assert [reply.status_code for reply in done] == [201] * len(done), [reply.text for reply in done]

    def write(statement: str, *values: str) -> None:
        with closing(sqlite3.connect(tmp_path / "control.db")) as database, database:
            assert database.execute(statement, values).rowcount == 1

    yield write


LISTS = {
    "/v1/pools": ("UPDATE pools SET settings = '{broken' WHERE id = 'bad'", "pools", "bad"),
    "/v1/pools/bad/targets": (
        "UPDATE targets SET settings = 'oops' WHERE pool_id = 'bad' AND id = 'one'",
        "targets",
        "bad/one",
    ),
    "/v1/models": ("UPDATE models SET settings = '' WHERE id = 'org/bad'", "models", "org/bad"),
    "/v1/prices": ("UPDATE prices SET card = '{' WHERE version = 'bad/1'", "prices", "bad/1"),
    "/v1/standard-costs": (
        "UPDATE standard_costs SET output_usd_per_mtok = 'much' WHERE version = 'own-bad/1'",
        "standard_costs",
        "own-bad/1",
    ),
    "/v1/tenants": ("UPDATE tenants SET created_at = 'yesterday' WHERE id = 'acme'", "tenants", "acme"),
}


@pytest.mark.parametrize("path", LISTS)
def test_a_list_names_an_unreadable_row_and_gives_the_others(
    owner: TestClient, broken: Callable[..., None], path: str
) -> None:
    before = owner.get(path).json()
    statement, table, row = LISTS[path]
    broken(statement)
    reply = owner.get(path)
    assert reply.status_code == 200, reply.text
    page = reply.json()
    assert len(page["data"]) == len(before["data"]) - 1 and page["data"]
    assert [(one["table"], one["id"]) for one in page["unreadable"]] == [(table, row)]
    assert page["unreadable"][0]["reason"]
    assert before["unreadable"] == []
    all_rows = owner.get("/v1/unreadable-rows").json()["data"]
    assert [(one["table"], one["id"]) for one in all_rows] == [(table, row)]
    assert all_rows[0]["stored"] in statement


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/v1/pools", {"settings": {}}),
        ("/v1/pools/bad/targets", {"settings": {}}),
        ("/v1/models", {"settings": {}}),
        ("/v1/standard-costs", {"output_usd_per_mtok": "2.50"}),
        ("/v1/tenants", {"created_at": "2026-11-01T00:00:00+00:00"}),
    ],
)
def test_a_row_is_repaired(
    owner: TestClient, broken: Callable[..., None], path: str, values: dict[str, object]
) -> None:
    before = owner.get(path).json()["data"]
    statement, table, row = LISTS[path]
    broken(statement)
    done = owner.patch(f"/v1/unreadable-rows/{table}/{row}", json={"values": values})
    assert done.status_code == 200 and done.json()["data"] == [], done.text
    after = owner.get(path).json()
    assert len(after["data"]) == len(before) and after["unreadable"] == []
    entry = owner.get("/v1/audit?action=row.repair").json()["data"][0]
    assert entry["subject"] == f"{table}/{row}" and entry["detail"] == {"columns": [*values]}


def test_a_repair_that_repairs_nothing_or_is_none_changes_nothing(
    owner: TestClient, broken: Callable[..., None]
) -> None:
    broken(LISTS["/v1/pools"][0])
    for values, why in (
        ({"region": "eu"}, "cannot be read yet"),
        ({"id": "other"}, "'id' is not a column"),
        ({"settings": "text"}, "settings does not take"),
        ({"created_at": "2026-11-01"}, "time zone"),
    ):
        refused = owner.patch("/v1/unreadable-rows/pools/bad", json={"values": values})
        assert refused.status_code == 400 and why in refused.json()["error"]["message"], refused.text
    readable = owner.patch("/v1/unreadable-rows/pools/good", json={"values": {"region": "eu"}})
    assert readable.status_code == 404
    assert owner.delete("/v1/unreadable-rows/pools/good").status_code == 404
    assert owner.delete("/v1/unreadable-rows/nothing/good").status_code == 400
    assert owner.get("/v1/pools/good").json()["region"] == ""


def test_a_row_is_deleted_unless_another_refers_to_it(owner: TestClient, broken: Callable[..., None]) -> None:
    broken(LISTS["/v1/pools"][0])
    broken(LISTS["/v1/prices"][0])
    assert owner.delete("/v1/unreadable-rows/pools/bad").status_code == 409, "a model is served by it"
    assert owner.delete("/v1/unreadable-rows/prices/bad/1").status_code == 200
    assert owner.get("/v1/prices").json()["unreadable"] == []
    assert owner.delete("/v1/models/org/bad").status_code == 200
    assert owner.delete("/v1/unreadable-rows/pools/bad").status_code == 200
    assert owner.get("/v1/unreadable-rows").json()["data"] == []


def test_what_asks_for_the_row_itself_is_told_how_to_repair_it(owner: TestClient, broken: Callable[..., None]) -> None:
    broken(LISTS["/v1/pools"][0])
    for reply in (owner.get("/v1/pools/bad"), owner.delete("/v1/pools/bad")):
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (409, "row_unreadable")
        assert "tollkeeper rows repair pools bad" in error["message"]
    assert owner.get("/v1/pools/none").status_code == 404
    assert owner.get("/v1/pools/good").status_code == 200


def test_what_is_not_there_is_not_found_whatever_its_name_has_in_common_with_an_unreadable_row(
    owner: TestClient, broken: Callable[..., None], control_database_url: str
) -> None:
    broken(LISTS["/v1/pools"][0])
    database = ControlDatabase(control_database_url)
    with pytest.raises(NotFound) as missing, database.session() as session:
        assert [pool.id for pool in list_pools(session)] == ["demo", "good"]
        get_tenant(session, "badminton")
    assert missing.value.error_code == "not_found"
    with pytest.raises(RowUnreadable), database.session() as session:
        get_pool(session, "bad")


def test_other_rows_are_changed_beside_it(owner: TestClient, broken: Callable[..., None]) -> None:
    broken(LISTS["/v1/prices"][0])
    broken(LISTS["/v1/pools/bad/targets"][0])
    more = {"model": "org/good", "version": "good/2", "usd_per_mtok": RATES, "provider": "other"}
    assert owner.post("/v1/prices", json=more).status_code == 201
    assert owner.put("/v1/stored-keys/spare", json={"value": "sk-1"}).status_code == 200
    assert owner.delete("/v1/stored-keys/spare").status_code == 200


def test_a_row_that_can_be_read_and_not_shown_is_named_as_well(owner: TestClient, broken: Callable[..., None]) -> None:
    broken("UPDATE pools SET settings = '[1]' WHERE id = 'bad'")
    page = owner.get("/v1/pools").json()
    assert "good" in [pool["id"] for pool in page["data"]]
    assert [(one["table"], one["id"]) for one in page["unreadable"]] == [("pools", "bad")]
    assert owner.patch("/v1/unreadable-rows/pools/bad", json={"values": {"settings": {}}}).status_code == 200
    assert owner.get("/v1/pools").json()["unreadable"] == []


def test_a_tenant_is_not_told_of_what_it_does_not_see(
    owner: TestClient, as_role: AsRole, broken: Callable[..., None]
) -> None:
    admin = as_role("admin", "globex")
    broken(LISTS["/v1/tenants"][0])
    page = admin.get("/v1/tenants").json()
    assert [tenant["id"] for tenant in page["data"]] == ["globex"] and page["unreadable"] == []
    assert admin.get("/v1/unreadable-rows").status_code == 403


def test_a_gateways_snapshot_names_it_and_has_the_rest(
    owner: TestClient, broken: Callable[..., None], control_database_url: str
) -> None:
    for statement, _, _ in LISTS.values():
        broken(statement)
    owner.get("/v1/pools")
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        snapshot = load_snapshot(session)
    database.close()
    assert "org/good" in snapshot.models and "org/bad" not in snapshot.models
    assert len(snapshot.misconfigured) >= len(LISTS) - 1


def test_a_start_beside_unreadable_rows(tmp_path: Path, owner: TestClient, broken: Callable[..., None]) -> None:
    for statement, _, _ in LISTS.values():
        broken(statement)
    owner.__exit__()
    with client_of(ControlSettings(data=tmp_path)) as again:
        found = again.get("/v1/unreadable-rows").json()["data"]
    assert len(found) == len(LISTS)
