"""An admin token is never more than the account that made it: it ends with that, and is refused while that is less."""

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
    """Give the status that the token's bearer gets, and why it is refused as the list says."""
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
    assert told == {"tokens": sorted((mine["id"], by_token["id"]))}
    again, _ = sign_in_as(owner, "ann@example.com", "admin")
    assert again["id"] != account["id"] and state(owner, mine) == (401, "revoked")  # a name is no account


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
