"""Keys that people make for themselves: capped, counted, theirs alone, and gone with the account."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from backends.control.accounts import find_account
from backends.control.changes import Author
from backends.control.user_sessions import begin_session, new_secret

pytestmark = [
    pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("control_database_url"),
]


def person(owner: TestClient, email: str, **more: Any) -> TestClient:
    """Return a client of a developer of acme/search who has just signed in."""
    body = {"email": email, "name": "Dev", "role": "developer", "tenant": "acme", "team": "search", **more}
    made = owner.post("/v1/accounts", json=body)
    assert made.status_code == 201, made.text
    assert isinstance(owner.app, FastAPI)
    state, secret = owner.app.state, new_secret()
    with state.database.session() as session:
        account = find_account(session, email)
        assert account is not None
        author = Author(email, datetime.now(UTC))
        begin_session(session, author, account, "oidc", secret, timedelta(hours=1), state.key_pepper)
    client = TestClient(owner.app)
    client.headers["Authorization"] = f"Bearer {secret}"
    return client


def test_a_key_of_ones_own_is_of_the_team_and_has_a_hard_budget(owner: TestClient) -> None:
    ada = person(owner, "ada@example.com")
    made = ada.post("/v1/self/keys", json={"name": "laptop"})
    assert made.status_code == 201
    key = made.json()
    assert key["secret"].startswith("tk-") and (key["team_id"], key["cap_usd"], key["spent_usd"]) == (
        "search",
        "10",
        "0",
    )
    (budget,) = [b for b in owner.get("/v1/tenants/acme/budgets").json()["data"] if b["subject"] == key["id"]]
    assert (budget["level"], budget["amount_usd"], budget["period"], budget["is_hard"]) == ("key", "10", "month", True)
    listed = ada.get("/v1/self/keys").json()
    assert [row["id"] for row in listed["data"]] == [key["id"]] and listed["most"] == 3
    assert "secret" not in listed["data"][0]


def test_the_fourth_key_is_refused_until_one_is_revoked_and_leaves_nothing_behind(owner: TestClient) -> None:
    ada = person(owner, "ada@example.com")
    ids = [ada.post("/v1/self/keys", json={"name": f"k{n}"}).json()["id"] for n in range(3)]
    refused = ada.post("/v1/self/keys", json={"name": "k4"})
    assert refused.status_code == 409 and "you have 3 keys" in refused.json()["error"]["message"]
    assert len(ada.get("/v1/self/keys").json()["data"]) == 3
    assert ada.delete(f"/v1/self/keys/{ids[0]}").json()["revoked_at"]
    assert ada.post("/v1/self/keys", json={"name": "k4"}).status_code == 201


def test_a_developer_sees_and_revokes_own_keys_alone(owner: TestClient) -> None:
    ada, bob = person(owner, "ada@example.com"), person(owner, "bob@example.com")
    theirs = bob.post("/v1/self/keys", json={"name": "bobs"}).json()["id"]
    teams = owner.post("/v1/tenants/acme/keys", json={"name": "app", "team": "search"}).json()["id"]
    assert ada.get("/v1/self/keys").json()["data"] == []
    for other in (theirs, teams, "key_nothing"):
        assert ada.delete(f"/v1/self/keys/{other}").status_code == 404
    budget = owner.get("/v1/tenants/acme/budgets").json()["data"][0]["id"]
    for path in ("keys", "budgets", f"budgets/{budget}", "limits", "teams"):
        assert ada.get(f"/v1/tenants/acme/{path}").status_code == 403
    assert ada.patch(f"/v1/tenants/acme/budgets/{budget}", json={"amount_usd": "1000"}).status_code == 403
    assert ada.delete(f"/v1/tenants/acme/budgets/{budget}").status_code == 403


def test_own_keys_end_when_the_account_is_closed_moved_or_removed(owner: TestClient) -> None:
    account = "/v1/accounts/ada@example.com"
    for act in (
        lambda: owner.patch(account, json={"is_active": False}),
        lambda: owner.patch(account, json={"role": "developer", "tenant": "acme", "team": "sales"}),
        lambda: owner.delete(account),
    ):
        ada = person(owner, "ada@example.com")
        key = ada.post("/v1/self/keys", json={"name": "laptop"}).json()["id"]
        assert act().status_code == 200
        assert owner.get(f"/v1/tenants/acme/keys/{key}").json()["revoked_at"]
        owner.delete(account)


def test_who_has_no_account_of_a_tenant_is_told_what_to_do(owner: TestClient) -> None:
    platform = person(owner, "cfo@example.com", role="finance", tenant=None, team=None)
    for client in (owner, platform):
        refused = client.post("/v1/self/keys", json={"name": "x"})
        assert refused.status_code == 403 and "account of one tenant" in refused.json()["error"]["message"]
