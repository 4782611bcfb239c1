"""SCIM 2.0 at the real control plane: judged by `scim2-tester` and the library's rules, and what it does to access."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_models import ScimProvider
from scim2_server.testing import ScimStorageContract
from scim2_tester import Status, check_server
from sqlalchemy import delete

from backends.control.accounts import find_account
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.user_sessions import begin_session, new_secret
from backends.secrets.secret_files import SecretFiles
from contracts.control import DirectoryEntry, RoleGrant, User
from gateway.control.app import create_app
from gateway.control.scim.service import PROVIDER
from gateway.control.scim.storage import DirectoryStorage
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import ON_SQLITE, AsRole
from tests.openapi_errors import served

SCHEMA: Final = "urn:ietf:params:scim:schemas:core:2.0:"
PATCH: Final = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
JSON: Final = {"Content-Type": "application/scim+json"}


@pytest.fixture
def directory(as_role: AsRole) -> TestClient:
    """The identity provider of acme."""
    client = as_role("directory", "acme")
    client.headers.update(JSON)
    return client


def user(email: str, **more: Any) -> dict[str, Any]:
    return {"schemas": [f"{SCHEMA}User"], "userName": email, "displayName": "Dev", **more}


def provision(directory: TestClient, email: str, **more: Any) -> str:
    made = directory.post("/scim/v2/Users", json=user(email, **more))
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def group(directory: TestClient, name: str, *members: str) -> str:
    body = {"schemas": [f"{SCHEMA}Group"], "displayName": name, "members": [{"value": one} for one in members]}
    made = directory.post("/scim/v2/Groups", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def patch(directory: TestClient, path: str, *operations: dict[str, Any]) -> Any:
    return directory.patch(f"/scim/v2/{path}", json={"schemas": [PATCH], "Operations": list(operations)})


@pytest.fixture(scope="module")
def judged(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client with a directory's token of a control plane that is served over HTTP."""
    folder = tmp_path_factory.mktemp("scim")
    shutil.copy(migrated_sqlite, folder / "control.db")
    app = create_app(ControlSettings(data=folder, database_url=f"sqlite:///{folder / 'control.db'}"))
    with served(app) as url, Client(base_url=url, timeout=30) as http:
        http.headers["Authorization"] = f"Bearer {SecretFiles(folder / 'secrets').get('admin_token')}"
        assert http.post("/v1/tenants", json={"id": "acme", "name": "Acme"}).status_code == 201
        made = http.post("/v1/tokens", json={"name": "idp", "role": "directory", "tenant": "acme"}).json()
        with Client(base_url=f"{url}/scim/v2", timeout=30) as scim:
            scim.headers["Authorization"] = f"Bearer {made['secret']}"
            yield scim


@pytest.mark.drill
def test_scim2_tester_finds_no_fault_with_the_served_control_plane(judged: Client) -> None:
    results = check_server(SyncSCIMClient(judged))
    wrong = [(one.title, one.reason) for one in results if one.status in (Status.ERROR, Status.CRITICAL)]
    assert wrong == []
    passed = {one.title for one in results if one.status is Status.SUCCESS}
    assert {"object_creation", "object_query", "object_replacement", "object_deletion"} <= passed, passed


class TestStorage(ScimStorageContract):
    """The library's own rules for what stands behind it: filters, sorting, paging, versions, uniqueness."""

    @pytest.fixture
    def provider(self) -> ScimProvider:
        return PROVIDER

    @pytest.fixture
    def storage(self, empty_database: ControlDatabase) -> DirectoryStorage:
        author = Author("idp", datetime.now(UTC), tenant_id="acme")
        return DirectoryStorage(empty_database, author, PROVIDER)


@pytest.fixture(scope="module")
def kept_database(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlDatabase]:
    path = Path(shutil.copy(migrated_sqlite, tmp_path_factory.mktemp("storage") / "control.db"))
    database = ControlDatabase(f"sqlite:///{path}")
    with database.session() as session:
        create_tenant(session, Author("test", datetime.now(UTC)), "acme", "Acme")
    yield database
    database.close()


@pytest.fixture
def empty_database(kept_database: ControlDatabase) -> ControlDatabase:
    with kept_database.session() as session:
        for table in (DirectoryEntry, RoleGrant, User):
            session.execute(delete(table))
    return kept_database


def test_a_provisioned_user_is_a_developer_in_the_team_of_its_group(owner: TestClient, directory: TestClient) -> None:
    ada = provision(directory, "Ada@Example.com", name={"givenName": "Ada", "familyName": "Byron"})
    group(directory, "Search & Ranking", ada)
    account = owner.get("/v1/accounts/ada@example.com").json()
    assert (account["role"], account["tenant_id"], account["team_id"]) == ("developer", "acme", "search-ranking")
    assert owner.get("/v1/tenants/acme/teams/search-ranking").json()["name"] == "Search & Ranking"
    shown = directory.get(f"/scim/v2/Users/{ada}").json()
    assert [one["display"] for one in shown["groups"]] == ["Search & Ranking"]
    actions = {row["action"]: row for row in owner.get("/v1/audit", params={"limit": 50}).json()["data"]}
    assert {"directory.user", "directory.group", "user.create", "user.grant", "team.create"} <= set(actions)
    assert "directory's token" in actions["user.create"]["actor"]


def test_deactivation_ends_sessions_and_own_keys_and_activation_brings_the_account_back(
    owner: TestClient, directory: TestClient
) -> None:
    ada = provision(directory, "ada@example.com")
    assert own_key(owner, "ada@example.com", "laptop").status_code == 201
    key_id = owner.get("/v1/tenants/acme/keys").json()["data"][-1]["id"]
    token = session_of(owner, "ada@example.com")
    # What Entra sends, and what Okta sends.
    changed = patch(directory, f"Users/{ada}", {"op": "Replace", "path": "active", "value": False})
    assert changed.status_code == 204
    assert directory.get(f"/scim/v2/Users/{ada}").json()["active"] is False
    assert owner.get(f"/v1/tenants/acme/keys/{key_id}").json()["revoked_at"]
    refused = owner.get("/v1/self/keys", headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 401
    entry = next(r for r in owner.get("/v1/audit", params={"limit": 50}).json()["data"] if r["action"] == "user.update")
    assert entry["detail"]["keys"] == [key_id]
    patch(directory, f"Users/{ada}", {"op": "replace", "value": {"active": True}})
    assert owner.get("/v1/accounts/ada@example.com").json()["is_active"]


def test_deletion_removes_the_account_its_keys_and_its_memberships(owner: TestClient, directory: TestClient) -> None:
    ada, bob = provision(directory, "ada@example.com"), provision(directory, "bob@example.com")
    team = group(directory, "search", ada, bob)
    assert own_key(owner, "ada@example.com", "laptop").status_code == 201
    assert directory.delete(f"/scim/v2/Users/{ada}").status_code == 204
    assert directory.get(f"/scim/v2/Users/{ada}").status_code == 404
    assert owner.get("/v1/accounts/ada@example.com").status_code == 404
    assert owner.get("/v1/tenants/acme/keys").json()["data"][-1]["revoked_at"]
    assert [one["value"] for one in directory.get(f"/scim/v2/Groups/{team}").json()["members"]] == [bob]


def test_who_leaves_a_group_leaves_its_team_and_loses_its_keys(owner: TestClient, directory: TestClient) -> None:
    ada = provision(directory, "ada@example.com")
    search, sales = group(directory, "search", ada), group(directory, "sales", ada)
    assert owner.get("/v1/accounts/ada@example.com").json()["team_id"] == "search"
    assert own_key(owner, "ada@example.com", "laptop").status_code == 201
    patch(directory, f"Groups/{search}", {"op": "remove", "path": f'members[value eq "{ada}"]'})
    assert owner.get("/v1/accounts/ada@example.com").json()["team_id"] == "sales"
    assert owner.get("/v1/tenants/acme/keys").json()["data"][-1]["revoked_at"]
    assert directory.delete(f"/scim/v2/Groups/{sales}").status_code == 204
    assert owner.get("/v1/accounts/ada@example.com").json()["team_id"] == ""
    assert owner.get("/v1/tenants/acme/teams/sales").status_code == 200


def test_a_role_that_somebody_gave_stays_whatever_the_groups_say(owner: TestClient, directory: TestClient) -> None:
    ada = provision(directory, "ada@example.com")
    promoted = {"role": "team_lead", "tenant": "acme", "team": "search"}
    assert owner.patch("/v1/accounts/ada@example.com", json=promoted).status_code == 200
    group(directory, "sales", ada)
    account = owner.get("/v1/accounts/ada@example.com").json()
    assert (account["role"], account["team_id"]) == ("team_lead", "search")


@ON_SQLITE
def test_a_directory_reaches_no_account_that_it_did_not_make(owner: TestClient, directory: TestClient) -> None:
    others = (("boss@example.com", {"role": "owner"}), ("eve@globex.com", {"role": "admin", "tenant": "globex"}))
    for email, more in others:
        made = owner.post("/v1/accounts", json={"email": email, "name": "x", **more})
        assert made.status_code == 201
        assert directory.get(f"/scim/v2/Users/{made.json()['id']}").status_code == 404
        assert directory.delete(f"/scim/v2/Users/{made.json()['id']}").status_code == 404
        taken = directory.post("/scim/v2/Users", json=user(email))
        assert (taken.status_code, taken.json()["scimType"]) == (409, "uniqueness")
        assert "exists already" in taken.json()["detail"]
    assert directory.get("/scim/v2/Users").json()["totalResults"] == 0
    assert directory.get("/v1/accounts").status_code == 403 and directory.get("/v1/tenants").status_code == 403
    assert directory.get("/v1/self/keys").status_code == 403


@ON_SQLITE
def test_refusals_are_scims_own_and_name_the_remedy(owner: TestClient, directory: TestClient, as_role: AsRole) -> None:
    path = "/scim/v2/Users"
    for client, status, word in ((as_role("admin", "acme"), 403, "--role directory"), (owner, 403, "--role directory")):
        reply = client.get(path)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "application/scim+json")
        assert word in reply.json()["detail"]
    nobody = owner.get(path, headers={"Authorization": "Bearer tk-admin-nonsense"})
    assert nobody.status_code == 401 and nobody.headers["www-authenticate"].startswith("Bearer")
    assert owner.get("/scim/v2/ServiceProviderConfig", headers={"Authorization": ""}).status_code == 200
    stranger = {"schemas": [f"{SCHEMA}Group"], "displayName": "x", "members": [{"value": "usr_nobody"}]}
    refused = directory.post("/scim/v2/Groups", json=stranger)
    assert refused.status_code == 400 and "usr_nobody" in refused.json()["detail"]
    assert directory.get(path, params={"filter": "userName zz 1"}).json()["scimType"] == "invalidFilter"
    assert directory.get("/scim/v2/Nothing").status_code == 404
    unbound = owner.post("/v1/tokens", json={"name": "idp", "role": "directory"})
    assert unbound.status_code == 400 and "tenant" in unbound.json()["error"]["message"]
    body = {"email": "a@b.co", "name": "x", "role": "directory", "tenant": "acme"}
    as_account = owner.post("/v1/accounts", json=body)
    assert as_account.status_code == 400 and "identity providers" in as_account.json()["error"]["message"]


@ON_SQLITE
def test_a_password_is_never_kept(directory: TestClient, owner: TestClient) -> None:
    ada = provision(directory, "ada@example.com", password="correct horse battery")
    assert isinstance(owner.app, FastAPI)
    with owner.app.state.database.session() as session:
        entry = session.get(DirectoryEntry, ada)
        assert entry is not None and "correct horse" not in str(entry.document)
    assert owner.get("/v1/accounts/ada@example.com").json()["has_password"] is False


def session_of(owner: TestClient, email: str) -> str:
    """Start a session as a sign-in by the identity provider does, and return its token."""
    assert isinstance(owner.app, FastAPI)
    state, secret = owner.app.state, new_secret()
    with state.database.session() as session:
        account = find_account(session, email)
        assert account is not None
        author = Author(email, datetime.now(UTC))
        begin_session(session, author, account, "oidc", secret, timedelta(hours=1), state.key_pepper)
    return secret


def own_key(owner: TestClient, email: str, name: str) -> Any:
    token = session_of(owner, email)
    return owner.post("/v1/self/keys", json={"name": name}, headers={"Authorization": f"Bearer {token}"})
