"""The control plane over HTTP: what an administrator does with it, and how it says no."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from backends.secrets.secret_files import SecretFiles
from contracts.access.keys import digest_of, is_well_formed
from contracts.control import AuditEntry
from contracts.errors import ConfigurationError
from gateway.control import app as control_app
from gateway.control import health
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import ON_SQLITE


@pytest.fixture
def settings(control_database_url: str, tmp_path: Path) -> ControlSettings:
    return ControlSettings(
        data=tmp_path,
        database_url=control_database_url,
        control_max_body_bytes=10_000,
    )


@pytest.fixture
def client(settings: ControlSettings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), client=("192.0.2.7", 50000)) as client:
        token = SecretFiles(settings.data / "secrets").get("admin_token")
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def test_a_key_made_over_http_is_known_to_the_data_plane_and_shown_once(
    client: TestClient, settings: ControlSettings, control_database: ControlDatabase
) -> None:
    assert client.post("/v1/tenants", json={"id": "acme", "name": "Acme"}).status_code == 201
    assert client.post("/v1/tenants/acme/teams", json={"id": "search", "name": "Search"}).status_code == 201
    project = client.post("/v1/tenants/acme/teams/search/projects", json={"id": "ranking", "name": "Ranking"})
    assert project.status_code == 201
    made = client.post(
        "/v1/tenants/acme/keys",
        json={"name": "app", "team": "search", "project": "ranking", "models": ["scripted-1"]},
    )
    assert made.status_code == 201
    secret, key_id = made.json()["secret"], made.json()["id"]
    assert is_well_formed(secret) and key_id.startswith("key_")

    pepper = SecretFiles(settings.data / "secrets").get("key_pepper")
    assert pepper is not None
    with control_database.session() as session:
        entry = load_snapshot(session).keys[digest_of(secret, pepper.encode())]
    assert (entry.identity.tenant, entry.identity.team, entry.identity.project) == ("acme", "search", "ranking")

    for path in ("/v1/tenants/acme/keys", f"/v1/tenants/acme/keys/{key_id}"):
        shown = client.get(path)
        assert shown.status_code == 200 and secret not in shown.text and "digest" not in shown.text


def test_a_revoked_key_leaves_what_gateways_load_and_is_listed_as_revoked(
    client: TestClient, control_database: ControlDatabase
) -> None:
    key_id = client.post("/v1/tenants/demo/keys", json={"name": "app"}).json()["id"]
    before = client.get("/ready").json()["revision"]
    revoked = client.delete(f"/v1/tenants/demo/keys/{key_id}")
    assert revoked.status_code == 200 and revoked.json()["revoked_at"]
    assert client.get("/ready").json()["revision"] == before + 1
    with control_database.session() as session:
        assert key_id not in {entry.identity.key_id for entry in load_snapshot(session).keys.values()}
    listed = {key["id"]: key["revoked_at"] for key in client.get("/v1/tenants/demo/keys").json()["data"]}
    assert listed[key_id] == revoked.json()["revoked_at"]


def test_the_first_start_offers_a_model_a_price_and_a_key_that_later_starts_keep(
    client: TestClient, settings: ControlSettings, control_database: ControlDatabase
) -> None:
    secrets = SecretFiles(settings.data / "secrets")
    demo_key, pepper = secrets.get("demo_key"), secrets.get("key_pepper")
    assert demo_key is not None and is_well_formed(demo_key) and pepper is not None
    assert (secrets.directory / "demo_key").stat().st_mode & 0o777 == 0o600
    revision = client.get("/ready").json()["revision"]
    with TestClient(create_app(settings), client=("127.0.0.1", 50000)) as again:
        assert again.get("/ready").json()["revision"] == revision
    with control_database.session() as session:
        snapshot = load_snapshot(session)
    assert list(snapshot.models) == ["scripted-1"]
    assert snapshot.keys[digest_of(demo_key, pepper.encode())].identity.tenant == "demo"


def test_what_was_removed_does_not_come_back_at_the_next_start(client: TestClient, settings: ControlSettings) -> None:
    assert client.delete("/v1/models/scripted-1").status_code == 200
    assert client.delete("/v1/pools/demo").status_code == 200
    with TestClient(create_app(settings)) as again:
        again.headers["Authorization"] = client.headers["Authorization"]
        assert again.get("/v1/models").json()["data"] == []


def test_an_upstream_from_the_environment_is_offered_without_its_key(settings: ControlSettings) -> None:
    upstream = {"upstream_url": "http://127.0.0.1:9/v1", "upstream_model": "org/llama", "upstream_key": "sk-hidden"}
    with TestClient(create_app(settings.model_copy(update=upstream))) as client:
        client.headers["Authorization"] = f"Bearer {SecretFiles(settings.data / 'secrets').get('admin_token')}"
        assert client.get("/v1/models/org/llama").json()["pool_id"] == "upstream"
        targets = client.get("/v1/pools/upstream/targets")
    assert targets.json()["data"][0]["key_ref"] == "env:TOLLKEEPER_UPSTREAM_KEY"
    assert "sk-hidden" not in targets.text
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_UPSTREAM_MODEL is not"):
        create_app(settings.model_copy(update={"upstream_url": "http://127.0.0.1:9/v1"}))


def test_models_pools_and_prices_are_made_and_removed(client: TestClient) -> None:
    assert client.post("/v1/pools", json={"id": "own", "region": "eu-1"}).status_code == 201
    target = {
        "id": "one",
        "kind": "openai_http",
        "url": "http://127.0.0.1:8000/v1",
        "key_ref": "env:MODEL_API_KEY",
        "weight": 2,
    }
    assert client.post("/v1/pools/own/targets", json=target).json()["weight"] == 2
    hosted = {"id": "hosted", "kind": "litellm", "model": "anthropic/claude-sonnet-4-5", "key_ref": "env:A_API_KEY"}
    assert client.post("/v1/pools/own/targets", json=hosted).json()["kind"] == "litellm"
    model = {"id": "org/small:1", "pool": "own", "context_tokens": 8192}
    assert client.post("/v1/models", json=model).status_code == 201
    assert client.get("/v1/models/org/small:1").json()["context_tokens"] == 8192
    price = {"model": "org/small:1", "version": "small/1", "usd_per_mtok": {"input_text": "0.15", "output_text": 0.6}}
    made = client.post("/v1/prices", json=price)
    assert made.status_code == 201
    assert made.json()["card"]["usd_per_mtok"] == {"input_text": "0.15", "output_text": "0.6"}
    assert client.patch("/v1/prices/small/1", json={"valid_to": "2027-01-01T00:00:00Z"}).status_code == 200
    standard = {
        "model": "org/small:1",
        "version": "small/std",
        "input_usd_per_mtok": "0.05",
        "cached_input_usd_per_mtok": "0.01",
        "output_usd_per_mtok": "0.2",
        "valid_from": "2027-01-01T01:00:00+01:00",
    }
    assert client.post("/v1/standard-costs", json=standard).status_code == 201
    assert [card["version"] for card in client.get("/v1/standard-costs").json()["data"]] == ["small/std"]
    assert client.patch("/v1/models/org/small:1", json={"is_active": False}).json()["is_active"] is False
    assert client.delete("/v1/models/org/small:1").json() == {"id": "org/small:1", "deleted": True}
    assert client.delete("/v1/pools/own/targets/one").status_code == 200
    assert client.delete("/v1/pools/own").status_code == 200


def test_tenants_teams_and_projects_are_changed_and_removed(client: TestClient) -> None:
    client.post("/v1/tenants", json={"id": "acme", "name": "Acme"})
    changed = client.patch("/v1/tenants/acme", json={"time_zone": "Europe/Berlin", "weight": 4})
    assert (changed.json()["name"], changed.json()["time_zone"], changed.json()["weight"]) == (
        "Acme",
        "Europe/Berlin",
        4,
    )
    teams = "/v1/tenants/acme/teams"
    client.post(teams, json={"id": "search", "name": "Search"})
    client.post(f"{teams}/search/projects", json={"id": "ranking", "name": "Ranking"})
    assert client.patch(f"{teams}/search", json={"name": "Find"}).json()["name"] == "Find"
    assert client.get(f"{teams}/search").json()["name"] == "Find"
    assert client.patch(f"{teams}/search/projects/ranking", json={"name": "Order"}).json()["name"] == "Order"
    assert [row["id"] for row in client.get(f"{teams}/search/projects").json()["data"]] == ["ranking"]
    assert client.delete(f"{teams}/search/projects/ranking").status_code == 200
    assert client.get(f"{teams}/search/projects/ranking").status_code == 404
    assert client.delete(f"{teams}/search").status_code == 200
    assert client.delete("/v1/tenants/acme").json()["is_active"] is False
    refused = client.post("/v1/tenants/acme/keys", json={"name": "app"})
    assert refused.status_code == 409 and "not active" in refused.json()["error"]["message"]


def test_long_lists_come_in_pages(client: TestClient) -> None:
    for number in range(5):
        client.post("/v1/tenants", json={"id": f"t{number}", "name": "T"})
    first = client.get("/v1/tenants", params={"limit": 3}).json()
    assert ([row["id"] for row in first["data"]], first["has_more"]) == (["demo", "t0", "t1"], True)
    rest = client.get("/v1/tenants", params={"limit": 3, "after": "t1"}).json()
    assert ([row["id"] for row in rest["data"]], rest["has_more"]) == (["t2", "t3", "t4"], False)


def test_a_keys_end_can_be_moved(client: TestClient) -> None:
    key = client.post("/v1/tenants/demo/keys", json={"name": "app"}).json()
    end = datetime.now(UTC) + timedelta(hours=1)
    changed = client.patch(f"/v1/tenants/demo/keys/{key['id']}", json={"expires_at": end.isoformat()})
    assert datetime.fromisoformat(changed.json()["expires_at"]) == end


def test_every_change_is_audited_with_the_callers_address_and_without_secrets(
    client: TestClient, control_database: ControlDatabase
) -> None:
    secret = client.post("/v1/tenants/demo/keys", json={"name": "app"}).json()["secret"]
    with control_database.session() as session:
        entry = session.scalars(select(AuditEntry).order_by(AuditEntry.id.desc())).first()
        assert entry is not None
        assert (entry.action, entry.actor, entry.address) == ("key.create", "admin", "192.0.2.7")
        assert secret not in str(entry.detail)


@ON_SQLITE
def test_health_readiness_and_signing_in_need_no_token_and_everything_else_does(client: TestClient) -> None:
    del client.headers["Authorization"]
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json()["status"] == "ready"
    open_paths = {"/health", "/ready", "/sign-in", "/sign-in/oidc"}
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method in operations:
            status = client.request(method, path.replace("{", "").replace("}", "")).status_code
            assert (status != 401) == (path in open_paths), f"{method} {path} gave {status}"


@ON_SQLITE
def test_every_operation_is_described_on_the_openapi_page(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and "/v1/tenants/{tenant}/keys" in page.text
    assert "<script" not in page.text and "https://" not in page.text
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/tenants", "/v1/tenants/{tenant}/keys/{key}", "/v1/models", "/v1/pools", "/v1/standard-costs"} <= set(
        paths
    )
    assert all(operation.get("summary") for operations in paths.values() for operation in operations.values())


def test_it_says_in_time_that_its_database_hangs(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(session: object) -> int:
        released.wait(30)
        return 7

    monkeypatch.setattr(control_app, "read_revision", hang)
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 0.05)
    for _ in range(3):
        reply = client.get("/ready")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "control_unavailable")
        assert client.get("/health").status_code == 200
    released.set()
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 10.0)
    ready = client.get("/ready").json()
    assert (ready["status"], ready["revision"]) == ("ready", 7)
