"""An admin token is never more than the account that made it: it ends with that, and is refused while that is less."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from fastapi.testclient import TestClient
from sqlalchemy import text

from backends.control.database import ControlDatabase
from migrations.database import alembic_config
from tests.gateway.control.accounts_of import bearing, sign_in_as


def token_of(client: TestClient, role: str = "admin", tenant: str | None = None) -> Any:
    made = client.post("/v1/tokens", json={"name": "job", "role": role, "tenant": tenant})
    assert made.status_code == 201, made.text
    return made.json()


def state(owner: TestClient, token: Any) -> tuple[int, str]:
    """Return the status that the token's bearer gets, and why it is refused as the list says."""
    answered = bearing(owner, token["secret"]).get("/v1/sessions/current").status_code
    (listed,) = (row for row in owner.get("/v1/tokens").json()["data"] if row["id"] == token["id"])
    assert listed == owner.get(f"/v1/tokens/{token['id']}").json()
    return answered, listed["refused"]


def test_a_token_ends_with_its_account(owner: TestClient) -> None:
    account, ann = sign_in_as(owner, "ann@example.com", "admin")
    mine, owners = token_of(ann), token_of(owner)
    assert (mine["account_id"], owners["account_id"]) == (account["id"], "")
    by_token = token_of(bearing(owner, mine["secret"]), "finance")
    assert by_token["account_id"] == account["id"]  # what its token makes is its account's too
    assert state(owner, mine) == state(owner, by_token) == state(owner, owners) == (200, "")
    assert owner.delete(f"/v1/accounts/{account['id']}").status_code == 200
    assert state(owner, mine) == state(owner, by_token) == (401, "revoked")
    assert state(owner, owners) == (200, "")
    told = owner.get("/v1/audit", params={"action": "user.delete"}).json()["data"][0]["detail"]
    assert sorted(told["tokens"]) == sorted((mine["id"], by_token["id"]))
    again, _ = sign_in_as(owner, "ann@example.com", "admin")
    assert again["id"] != account["id"] and state(owner, mine) == (401, "revoked")  # a name is not an account


def test_a_token_is_refused_while_its_account_is_kept_out(owner: TestClient) -> None:
    account, ann = sign_in_as(owner, "ann@example.com", "admin")
    token, path = token_of(ann), f"/v1/accounts/{account['id']}"
    owner.patch(path, json={"is_active": False})
    assert state(owner, token) == (401, "its account is closed")
    owner.patch(path, json={"is_active": True})
    assert state(owner, token) == (200, "")


@pytest.mark.parametrize(
    ("now", "works"),
    [
        ({"role": "owner", "tenant": None}, True),
        ({"role": "admin", "tenant": "acme"}, True),
        ({"role": "admin", "tenant": "globex"}, False),
        ({"role": "finance", "tenant": None}, False),
        ({"role": "team_lead", "tenant": "acme", "team": "search"}, False),
    ],
)
@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_a_token_is_no_more_than_what_its_account_may_give_now(
    owner: TestClient, now: dict[str, Any], works: bool
) -> None:
    account, ann = sign_in_as(owner, "ann@example.com", "admin")
    token, path = token_of(ann, "admin", "acme"), f"/v1/accounts/{account['id']}"
    assert owner.patch(path, json=now).status_code == 200
    assert state(owner, token) == ((200, "") if works else (401, "its account may no longer give it"))
    owner.patch(path, json={"role": "admin", "tenant": None})
    assert state(owner, token) == (200, "")


def test_a_migration_finds_the_accounts_of_tokens(owner: TestClient, control_database: ControlDatabase) -> None:
    account, ann = sign_in_as(owner, "ann@example.com", "admin")
    gone, bob = sign_in_as(owner, "bob@example.com", "admin")
    wide, bound, owners, bobs = token_of(ann), token_of(ann, "finance", "acme"), token_of(owner), token_of(bob)
    by_token = token_of(bearing(owner, token_of(bearing(owner, wide["secret"]))["secret"]))
    by_bobs = token_of(bearing(owner, bobs["secret"]))
    config = alembic_config()
    config.attributes["database"] = control_database
    with control_database.session() as session:  # as an earlier version removed accounts
        session.execute(text("DELETE FROM role_grants WHERE user_id = :id"), {"id": gone["id"]})
        session.execute(text("DELETE FROM user_sessions WHERE user_id = :id"), {"id": gone["id"]})
        session.execute(text("DELETE FROM users WHERE id = :id"), {"id": gone["id"]})
    command.downgrade(config, "0014")
    command.upgrade(config, "head")
    with control_database.session() as session:
        found = {row.id: row.user_id for row in session.execute(text("SELECT id, user_id FROM admin_tokens"))}
    anns = {token for token, user in found.items() if user == account["id"]}
    assert anns >= {wide["id"], bound["id"], by_token["id"]} and len(anns) == 4  # and the one it was made with
    assert found[owners["id"]] == found[bobs["id"]] == found[by_bobs["id"]] == "" and len(found) == 7


def test_a_token_is_revoked_with_the_one_that_made_it(owner: TestClient) -> None:
    parent, other = token_of(owner), token_of(owner)
    child = token_of(bearing(owner, parent["secret"]))
    grandchild = token_of(bearing(owner, child["secret"]), "finance")
    assert (parent["parent_id"], child["parent_id"], grandchild["parent_id"]) == ("", parent["id"], child["id"])
    assert state(owner, child) == state(owner, grandchild) == (200, "")
    assert owner.delete(f"/v1/tokens/{parent['id']}").status_code == 200
    assert state(owner, child) == state(owner, grandchild) == (401, "revoked")
    assert state(owner, other) == (200, "")
    told = owner.get("/v1/audit", params={"action": "token.revoke"}).json()["data"][0]["detail"]
    assert told == {"tokens": [child["id"], grandchild["id"]]}


def test_a_token_ends_no_later_than_the_one_that_made_it(owner: TestClient, control_database: ControlDatabase) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    parent = owner.post("/v1/tokens", json={"name": "short", "role": "admin", "expires_at": ends.isoformat()}).json()
    bearer = bearing(owner, parent["secret"])
    child = token_of(bearer)
    assert datetime.fromisoformat(child["expires_at"]) == ends
    for seconds, status in ((-1, 201), (0, 201), (1, 400)):
        wanted = (ends + timedelta(seconds=seconds)).isoformat()
        made = bearer.post("/v1/tokens", json={"name": "job", "role": "admin", "expires_at": wanted})
        assert made.status_code == status, made.text
    assert made.json()["error"]["param"] == "expires_at"
    with control_database.session() as session:  # as a version did that did not know parents, and an hour later
        session.execute(text("UPDATE admin_tokens SET expires_at = NULL WHERE id = :id"), {"id": child["id"]})
        past = {"id": parent["id"], "at": datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=2)}
        session.execute(text("UPDATE admin_tokens SET expires_at = :at WHERE id = :id"), past)
    assert state(owner, child) == (401, "the token that made it has expired")


def test_a_migration_finds_the_parents_of_tokens(owner: TestClient, control_database: ControlDatabase) -> None:
    parent = token_of(owner)
    child = token_of(bearing(owner, parent["secret"]), "finance", "acme")
    config = alembic_config()
    config.attributes["database"] = control_database
    command.downgrade(config, "0016")
    command.upgrade(config, "head")
    assert owner.get(f"/v1/tokens/{child['id']}").json()["parent_id"] == parent["id"]
    assert owner.get(f"/v1/tokens/{parent['id']}").json()["parent_id"] == ""
