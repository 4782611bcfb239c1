"""Saved views over HTTP: each its owner's, some shown to those who are bound alike, none with rights of its own."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.erasure import erase_tenant, erase_user, export_tenant, export_user
from backends.control.saved_views import MAX_VIEWS
from tests.gateway.control.accounts_of import sign_in_as
from tests.gateway.control.conftest import AsRole

ON_SQLITE = pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
FAILED: dict[str, Any] = {"name": "Failed of today", "parameters": {"outcome": "error", "range": "24h", "q": ""}}


def names(client: TestClient, **query: str) -> list[str]:
    reply = client.get("/v1/saved-views", params=query)
    assert reply.status_code == 200, reply.text
    return [row["name"] for row in reply.json()["data"]]


def refusal(reply: Any) -> tuple[int, str | None, str]:
    error = reply.json()["error"]
    return reply.status_code, error["param"], error["message"]


def test_a_view_is_kept_renamed_changed_and_deleted(owner: TestClient) -> None:
    made = owner.post("/v1/saved-views", json=FAILED)
    assert made.status_code == 201
    view = made.json()
    assert view["parameters"] == {"outcome": "error", "range": "24h"}  # what is empty is not asked for
    assert (view["page"], view["is_own"], view["is_shared"], view["shared_by"]) == ("requests", True, False, "")
    path = f"/v1/saved-views/{view['id']}"
    renamed = owner.patch(path, json={"name": "Failures"}).json()
    assert (renamed["name"], renamed["parameters"]) == ("Failures", view["parameters"])
    changed = owner.patch(path, json={"parameters": {"sort": "cost"}}).json()
    assert (changed["name"], changed["parameters"]) == ("Failures", {"sort": "cost"})
    assert owner.get(path).json() == changed
    assert names(owner) == names(owner, page="requests") == ["Failures"] and names(owner, page="costs") == []
    assert owner.delete(path).json() == {"id": view["id"], "deleted": True}
    assert names(owner) == [] and owner.get(path).status_code == 404


@ON_SQLITE
@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"name": " "}, 400, "name", "at least 1"),
        ({"name": "x" * 81}, 400, "name", "80"),
        ({"name": "two\nlines"}, 400, "name", "control characters"),
        ({"page": "planner"}, 400, "page", "no views are kept of page 'planner'"),
        ({"parameters": {"request": "0193"}}, 400, "parameters", "does not keep 'request'"),
        ({"parameters": {"q": "x" * 501}}, 400, "parameters.q", "500"),
        ({"parameters": {"q": "a\x00b"}}, 400, "parameters.q", "control characters"),
        ({"parameters": {str(n): "x" for n in range(21)}}, 400, "parameters", "20"),
        ({"rights": "all"}, 400, "rights", "rights"),
    ],
)
def test_what_cannot_be_a_view_is_refused_in_words(
    owner: TestClient, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    said = refusal(owner.post("/v1/saved-views", json={**FAILED, **body}))
    assert said[:2] == (status, param) and words in said[2], said
    assert names(owner) == []


@ON_SQLITE
def test_a_name_is_taken_once_by_each_owner(owner: TestClient, as_role: AsRole) -> None:
    finance = as_role("finance")
    for client in (owner, finance):
        assert client.post("/v1/saved-views", json=FAILED).status_code == 201
    assert refusal(owner.post("/v1/saved-views", json=FAILED))[:2] == (409, "name")
    other = owner.post("/v1/saved-views", json={**FAILED, "name": "Other"}).json()
    path = f"/v1/saved-views/{other['id']}"
    assert refusal(owner.patch(path, json={"name": FAILED["name"]}))[:2] == (409, "name")
    assert owner.patch(path, json={"name": "Other"}).status_code == 200  # its own name is no other's


@ON_SQLITE
def test_one_owner_keeps_so_many_and_no_more(owner: TestClient, as_role: AsRole) -> None:
    for number in range(MAX_VIEWS):
        made = owner.post("/v1/saved-views", json={**FAILED, "name": f"view {number}"})
        assert made.status_code == 201, number
    status, param, words = refusal(owner.post("/v1/saved-views", json=FAILED))
    assert (status, param) == (400, "name") and f"{MAX_VIEWS} views" in words
    assert as_role("finance").post("/v1/saved-views", json=FAILED).status_code == 201
    assert owner.delete(f"/v1/saved-views/{made.json()['id']}").status_code == 200
    assert owner.post("/v1/saved-views", json=FAILED).status_code == 201


def test_a_shared_view_is_shown_to_who_is_bound_alike_and_to_nobody_else(owner: TestClient) -> None:
    _, ann = sign_in_as(owner, "ann@example.com", "admin", "acme")
    _, lead = sign_in_as(owner, "lead@example.com", "team_lead", "acme", "search")
    _, other = sign_in_as(owner, "other@example.com", "admin", "globex")
    view = ann.post("/v1/saved-views", json={**FAILED, "is_shared": True}).json()
    path = f"/v1/saved-views/{view['id']}"
    ann.post("/v1/saved-views", json={**FAILED, "name": "mine alone"})
    (seen,) = lead.get("/v1/saved-views").json()["data"]
    assert (seen["id"], seen["is_own"], seen["shared_by"]) == (view["id"], False, "Ann")
    for stranger in (other, owner):  # the platform's owner is bound to nothing, and has views of another kind
        assert names(stranger) == [] and stranger.get(path).status_code == 404
    for client in (lead, other, owner):
        assert client.patch(path, json={"name": "x"}).status_code == 404
        assert client.delete(path).status_code == 404
    assert owner.post("/v1/saved-views", json={**FAILED, "is_shared": True}).status_code == 201
    assert names(lead) == [FAILED["name"]] and lead.get("/v1/saved-views").json()["data"][0]["id"] == view["id"]
    assert ann.patch(path, json={"is_shared": False}).status_code == 200
    assert names(lead) == [] and lead.get(path).status_code == 404


@ON_SQLITE
def test_a_shared_view_gives_no_rights(owner: TestClient) -> None:
    _, ann = sign_in_as(owner, "ann@example.com", "admin", "acme")
    _, lead = sign_in_as(owner, "lead@example.com", "team_lead", "acme", "search")
    keeps = {"name": "Keys", "parameters": {"tenant": "acme", "team": "sales"}, "is_shared": True}
    assert ann.post("/v1/saved-views", json=keeps).status_code == 201
    assert names(lead) == ["Keys"]
    assert lead.get("/v1/tenants/acme/teams/sales").status_code == 404


@ON_SQLITE
def test_views_come_in_pages(owner: TestClient) -> None:
    for number in range(3):
        owner.post("/v1/saved-views", json={**FAILED, "name": f"view {number}"})
    first = owner.get("/v1/saved-views", params={"limit": 2}).json()
    assert first["has_more"] and len(first["data"]) == 2
    rest = owner.get("/v1/saved-views", params={"limit": 2, "after": first["data"][-1]["id"]}).json()
    assert [row["name"] for row in (*first["data"], *rest["data"])] == [f"view {number}" for number in range(3)]


@ON_SQLITE
def test_views_go_with_their_account_and_stay_behind_with_none(owner: TestClient) -> None:
    account, ann = sign_in_as(owner, "ann@example.com", "admin", "acme")
    _, bob = sign_in_as(owner, "bob@example.com", "finance", "acme")
    ann.post("/v1/saved-views", json={**FAILED, "is_shared": True})
    assert names(bob) == [FAILED["name"]]
    moved = owner.patch(f"/v1/accounts/{account['id']}", json={"role": "admin", "tenant": "globex"})
    assert moved.status_code == 200
    assert names(bob) == [] and names(ann) == [FAILED["name"]]  # it went along, and is shared with nobody
    assert ann.get("/v1/saved-views").json()["data"][0]["is_shared"] is False
    assert owner.delete(f"/v1/accounts/{account['id']}").status_code == 200
    again, ann = sign_in_as(owner, "ann@example.com", "admin", "globex")
    assert names(ann) == []


@ON_SQLITE
def test_a_view_that_names_what_is_a_tenants_does_not_come_to_another(
    owner: TestClient, control_database: ControlDatabase
) -> None:
    """Else it would name whom an erasure there takes out, and the erasure would not find it."""
    account, ann = sign_in_as(owner, "ann@example.com", "admin", "acme")
    path = f"/v1/accounts/{account['id']}"
    named: dict[str, Any] = {"name": "Alice's", "parameters": {"q": "user:alice", "team": "search"}, "is_shared": True}
    for body in (FAILED, named):
        assert ann.post("/v1/saved-views", json=body).status_code == 201
    assert owner.patch(path, json={"role": "admin", "tenant": None}).status_code == 200
    views = {view["name"]: view for view in ann.get("/v1/saved-views").json()["data"]}
    assert views["Alice's"]["parameters"] == {**named["parameters"], "tenant": "acme"}  # what it showed, it shows
    assert "tenant" not in views[FAILED["name"]]["parameters"]
    assert not any(view["is_shared"] for view in views.values())
    with control_database.session() as session:
        assert len(dict(export_user(session, "acme", "alice"))["saved_views"]) == 1
    assert owner.patch(path, json={"role": "admin", "tenant": "globex"}).status_code == 200
    assert names(ann) == [FAILED["name"]]
    with control_database.session() as session:
        assert "saved_views" not in dict(export_user(session, "acme", "alice"))


@ON_SQLITE
@pytest.mark.parametrize(
    "typed", ["user:'alice'", "'user:alice'", "user:al\\ice", 'ttft>1s "user":alice', "tag.of:Alice"]
)
def test_an_erasure_finds_a_user_however_the_search_writes_the_name(
    owner: TestClient, control_database: ControlDatabase, typed: str
) -> None:
    for body in ({"name": "found", "parameters": {"q": typed}}, {"name": "not", "parameters": {"q": "user:'alices'"}}):
        assert owner.post("/v1/saved-views", json=body).status_code == 201
    with control_database.session() as session:
        assert erase_user(session, Author("test", datetime.now(UTC)), "acme", "alice") == 1
    assert names(owner) == ["not"]


@ON_SQLITE
def test_a_tenants_audit_tells_of_its_own_views_and_of_no_others(owner: TestClient) -> None:
    _, ann = sign_in_as(owner, "ann@example.com", "admin", "acme")
    _, other = sign_in_as(owner, "other@example.com", "admin", "globex")
    view = ann.post("/v1/saved-views", json=FAILED).json()
    for client, told in ((ann, [f"acme/{view['id']}"]), (other, []), (owner, [f"acme/{view['id']}"])):
        shown = client.get("/v1/audit", params={"action": "saved_view"}).json()["data"]
        assert [entry["subject"] for entry in shown] == told and FAILED["name"] not in str(shown)


@ON_SQLITE
def test_what_is_erased_is_in_no_view(owner: TestClient, control_database: ControlDatabase) -> None:
    for name, parameters in (
        ("of acme", {"tenant": "acme"}),
        ("of globex", {"tenant": "globex", "q": "user:alice"}),
        ("of alice", {"q": "ttft>1s user:Alice"}),
        ("of alices", {"q": "user:alices"}),
        ("of acme's alice", {"tenant": "acme", "q": "alice"}),
    ):
        assert owner.post("/v1/saved-views", json={"name": name, "parameters": parameters}).status_code == 201
    author = Author("test", datetime.now(UTC))
    with control_database.session() as session:
        told = dict(export_user(session, "acme", "alice"))["saved_views"]
        assert len(told) == 2 and "of alices" not in str(told)
        assert erase_user(session, author, "acme", "alice") == 2
    assert names(owner) == ["of acme", "of globex", "of alices"]
    assert owner.patch("/v1/tenants/acme", json={"is_active": False}).status_code == 200
    with control_database.session() as session:
        erase_tenant(session, author, "acme")
        assert "saved_views" not in dict(export_tenant(session, "globex"))  # the owner's, not the tenant's own
    assert names(owner) == ["of globex", "of alices"]
