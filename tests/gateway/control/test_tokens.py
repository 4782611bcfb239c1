"""Admin tokens and the audit trail over HTTP: shown once, revoked at once, and never above their maker."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from backends.control.database import ControlDatabase
from contracts.control import AdminToken
from tests.gateway.control.conftest import AsRole

ON_SQLITE = pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
LATER = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def bearing(owner: TestClient, secret: str) -> TestClient:
    client = TestClient(owner.app, headers={"Authorization": f"Bearer {secret}"})
    client.portal = owner.portal  # else each request would start a thread and an event loop of its own
    return client


def test_a_token_works_until_it_is_revoked_and_is_shown_once(
    owner: TestClient, control_database: ControlDatabase
) -> None:
    made = owner.post("/v1/tokens", json={"name": "Ann", "role": "admin", "expires_at": LATER}).json()
    secret, path = made["secret"], f"/v1/tokens/{made['id']}"
    assert secret.startswith("tk-admin-") and made["hint"] == secret[-4:]
    for shown in (owner.get("/v1/tokens"), owner.get(path)):
        assert shown.status_code == 200 and secret not in shown.text and "digest" not in shown.text
    with control_database.session() as session:
        assert secret not in str(vars(session.scalars(select(AdminToken)).one()))
    client = bearing(owner, secret)
    assert client.get("/v1/pools").status_code == 200
    revoked_at = owner.delete(path).json()["revoked_at"]
    assert revoked_at is not None and owner.delete(path).json()["revoked_at"] == revoked_at
    refused = client.get("/v1/pools")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_admin_token")


@ON_SQLITE
@pytest.mark.parametrize(("seconds_left", "status"), [(60, 200), (0, 401), (-60, 401)])
def test_a_token_ends_at_its_moment(
    owner: TestClient, control_database: ControlDatabase, seconds_left: int, status: int
) -> None:
    secret = owner.post("/v1/tokens", json={"name": "Ann", "role": "admin", "expires_at": LATER}).json()["secret"]
    with control_database.session() as session:
        session.execute(update(AdminToken).values(expires_at=datetime.now(UTC) + timedelta(seconds=seconds_left)))
    assert bearing(owner, secret).get("/v1/pools").status_code == status


@ON_SQLITE
@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"role": "emperor"}, 400, "role", "'emperor'"),
        ({"role": "team_lead", "tenant": "acme"}, 400, "team", "needs `team`"),
        ({"role": "admin", "tenant": "acme", "team": "search"}, 400, "team", "no other role's"),
        ({"role": "team_lead", "team": "search"}, 400, "tenant", "needs its tenant"),
        ({"role": "owner", "tenant": "acme"}, 400, "tenant", "reaches everything"),
        ({"role": "admin", "tenant": "nobody"}, 404, None, "'nobody'"),
        ({"role": "team_lead", "tenant": "acme", "team": "none"}, 404, None, "no team 'none'"),
        ({"role": "admin", "expires_at": "2001-01-01T00:00:00Z"}, 400, "expires_at", "past"),
        ({"role": "admin", "name": ""}, 400, "name", "at least 1"),
        ({"role": "admin", "name": "x" * 121}, 400, "name", "120"),
    ],
)
def test_a_token_that_could_not_be_meant_is_refused(
    owner: TestClient, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    reply = owner.post("/v1/tokens", json={"name": "Ann", **body})
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["param"] == param and words in reply.json()["error"]["message"]
    assert owner.get("/v1/tokens").json()["data"] == []


@ON_SQLITE
def test_nobody_makes_or_revokes_a_token_above_its_own(owner: TestClient, as_role: AsRole) -> None:
    owners = owner.post("/v1/tokens", json={"name": "second owner", "role": "owner"}).json()["id"]
    theirs = owner.post("/v1/tokens", json={"name": "theirs", "role": "admin", "tenant": "globex"}).json()["id"]
    admin, of_tenant = as_role("admin"), as_role("admin", "acme")
    assert admin.post("/v1/tokens", json={"name": "x", "role": "owner"}).status_code == 403
    assert admin.delete(f"/v1/tokens/{owners}").status_code == 403
    assert admin.post("/v1/tokens", json={"name": "x", "role": "admin"}).status_code == 201
    for body in ({"role": "admin"}, {"role": "finance", "tenant": "globex"}):
        assert of_tenant.post("/v1/tokens", json={"name": "x", **body}).status_code == 404
    assert of_tenant.get(f"/v1/tokens/{theirs}").status_code == 404
    assert of_tenant.delete(f"/v1/tokens/{theirs}").status_code == 404
    mine = of_tenant.post("/v1/tokens", json={"name": "lead", "role": "team_lead", "tenant": "acme", "team": "sales"})
    assert mine.status_code == 201
    assert {row["tenant_id"] for row in of_tenant.get("/v1/tokens").json()["data"]} == {"acme"}
    assert of_tenant.delete(f"/v1/tokens/{mine.json()['id']}").status_code == 200


# --- the audit ---


def test_the_audit_names_the_token_and_comes_in_pages_the_latest_first(owner: TestClient, as_role: AsRole) -> None:
    admin = as_role("admin", "acme")
    key = admin.post("/v1/tenants/acme/keys", json={"name": "app"}).json()["id"]
    admin.patch(f"/v1/tenants/acme/keys/{key}", json={"priority": "batch"})
    owner.post("/v1/tenants/globex/keys", json={"name": "app"})
    token = owner.get("/v1/tokens").json()["data"][0]
    (entry,) = owner.get("/v1/audit", params={"action": "key.update"}).json()["data"]
    assert entry["actor"] == f"admin's token ({token['id']})"
    assert (entry["subject"], entry["address"]) == (f"acme/{key}", "192.0.2.8")
    assert entry["detail"] == {"before": {"priority": None}, "after": {"priority": "batch"}}
    whole = owner.get("/v1/audit").json()["data"]
    first = owner.get("/v1/audit", params={"limit": 2}).json()
    rest = owner.get("/v1/audit", params={"limit": 1000, "after": first["data"][-1]["id"]}).json()
    assert first["has_more"] and not rest["has_more"] and first["data"] + rest["data"] == whole
    assert [
        entry["subject"].partition("/")[0] for entry in owner.get("/v1/audit?action=key&limit=3").json()["data"]
    ] == [
        "globex",
        "acme",
        "acme",
    ]


@ON_SQLITE
def test_the_audit_of_a_tenant_shows_nothing_else_whatever_it_is_called(owner: TestClient, as_role: AsRole) -> None:
    assert owner.post("/v1/pools", json={"id": "acme"}).status_code == 201
    target = {"id": "one", "kind": "scripted"}
    assert owner.post("/v1/pools/acme/targets", json=target).status_code == 201
    assert owner.post("/v1/models", json={"id": "acme/small", "pool": "acme"}).status_code == 201
    assert owner.post("/v1/tenants", json={"id": "acme-too", "name": "Another"}).status_code == 201
    shown = as_role("finance", "acme").get("/v1/audit").json()["data"]
    assert {entry["action"] for entry in shown} == {"token.create", "team.create", "tenant.create"}
    assert {entry["subject"].partition("/")[0] for entry in shown} == {"acme"}
    assert shown == owner.get("/v1/audit", params={"tenant": "acme"}).json()["data"]
    assert as_role("finance", "acme").get("/v1/audit?tenant=globex").status_code == 404
    assert owner.get("/v1/audit?action=tenant%25").json()["data"] == []
    assert owner.get("/v1/audit?after=0").status_code == 400
