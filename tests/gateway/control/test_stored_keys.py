"""Providers' keys and webhooks over HTTP: sealed at rest, not shown, not in the audit, sealed again by a rotation."""

from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient
from sqlalchemy import text

from backends.control.database import ControlDatabase
from backends.control.sealer import KEY_FILE
from backends.secrets.secret_files import SecretFiles

KEY, WEBHOOK = "sk-hidden-0123456789", "https://hooks.example/hidden-path"
PATH = "/v1/stored-keys"
BUDGETS = "/v1/tenants/acme/budgets"
MONTHLY = {"level": "tenant", "period": "month", "amount_usd": "10"}


def everything(client: TestClient) -> str:
    """Return all rows of all tables that may hold a key."""
    database: ControlDatabase = client.app.state.database  # type: ignore[attr-defined]  # FastAPI's
    with database.session() as session:
        tables = ("stored_keys", "budgets", "audit", "alert_channels", "targets")
        return "\n".join(str(row) for table in tables for row in session.execute(text(f"SELECT * FROM {table}")))


def test_a_key_is_stored_sealed_and_not_shown(owner: TestClient) -> None:
    made = owner.put(f"{PATH}/openai", json={"value": KEY})
    assert made.status_code == 200 and (made.json()["name"], made.json()["version"]) == ("openai", 1)
    again = owner.put(f"{PATH}/openai", json={"value": KEY + "2"})
    assert again.json()["version"] == 2
    listed = owner.get(PATH)
    assert [one["name"] for one in listed.json()["data"]] == ["openai"]
    assert KEY not in made.text + again.text + listed.text + everything(owner)
    assert "openai" in owner.get("/v1/audit").text


def test_what_cannot_be_a_key_is_refused_without_being_shown(owner: TestClient) -> None:
    for value in ("", "sk hidden", "sk-hidden\nx", "sk-hidden-ä", "x" * 8193):
        answer = owner.put(f"{PATH}/openai", json={"value": value})
        assert answer.status_code == 400 and "hidden" not in answer.text, answer.text
    assert owner.put(f"{PATH}/Not_A_Name", json={"value": KEY}).status_code == 400


def test_a_key_that_a_target_uses_stays(owner: TestClient) -> None:
    owner.put(f"{PATH}/openai", json={"value": KEY})
    owner.post("/v1/pools", json={"id": "pool"})
    target = {"id": "t", "kind": "openai_http", "url": "http://h.example/v1", "key_ref": "stored:openai"}
    assert owner.post("/v1/pools/pool/targets", json=target).json()["key_ref"] == "stored:openai"
    refused = owner.delete(f"{PATH}/openai")
    assert refused.status_code == 409 and "target 't' of pool 'pool'" in refused.text
    owner.delete("/v1/pools/pool/targets/t")
    assert owner.delete(f"{PATH}/openai").status_code == 200
    assert owner.delete(f"{PATH}/openai").status_code == 404


def test_only_who_runs_the_platform_may(as_role: Callable[..., TestClient]) -> None:
    for client in (as_role("admin", "acme"), as_role("finance"), as_role("team_lead", "acme", "search")):
        assert client.get(PATH).status_code == client.put(f"{PATH}/x", json={"value": KEY}).status_code == 403


def test_a_budgets_webhook_is_sealed_at_rest_and_shown_to_who_set_it(owner: TestClient) -> None:
    made = owner.post(BUDGETS, json={**MONTHLY, "webhook_url": WEBHOOK}).json()
    path = f"{BUDGETS}/{made['id']}"
    assert made["webhook_url"] == owner.get(path).json()["webhook_url"] == WEBHOOK
    assert owner.get(BUDGETS).json()["data"][0]["webhook_url"] == WEBHOOK
    assert "hidden-path" not in everything(owner)
    assert owner.patch(path, json={"webhook_url": ""}).json()["webhook_url"] == ""


def test_all_is_sealed_anew_by_the_newest_key(owner: TestClient, tmp_path: Path) -> None:
    owner.put(f"{PATH}/openai", json={"value": KEY})
    owner.post(BUDGETS, json={**MONTHLY, "webhook_url": WEBHOOK})
    owner.post("/v1/alert-channels", json={"id": "ops", "kind": "webhook", "address": WEBHOOK})
    before = everything(owner)
    secrets = SecretFiles(tmp_path / "secrets")
    newest = SecretFiles(tmp_path / "new").get_or_create(KEY_FILE)
    secrets.replace(KEY_FILE, f"{newest}\n{secrets.get(KEY_FILE)}")
    assert owner.post(f"{PATH}/reseal").json() == {"stored_keys": 1, "alert_channels": 1, "budgets": 1, "mcp_tokens": 0}
    secrets.replace(KEY_FILE, newest)
    owner.app.state.sealer.refresh()  # type: ignore[attr-defined]  # FastAPI's
    assert owner.get(BUDGETS).json()["data"][0]["webhook_url"] == WEBHOOK
    tokens = {line for line in before.split("'") if line.startswith("gAAAA")}
    assert len(tokens) == 3 and not any(token in everything(owner) for token in tokens)
