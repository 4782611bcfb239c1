"""Keys with scopes, rotation and budgets, and identity providers, over HTTP."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.serving.configuration import IssuerSpec, KeyPolicy, Snapshot

ON_SQLITE = pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
KEYS = "/v1/tenants/acme/keys"
ISSUER = {"id": "sso", "issuer": "https://id.example.com", "audience": "tollkeeper", "tenant": "acme"}


def snapshot(database: ControlDatabase) -> Snapshot:
    with database.session() as session:
        return load_snapshot(session)


def test_a_key_is_rotated_changed_and_listed_by_kind(owner: TestClient) -> None:
    made = owner.post(KEYS, json={"name": "robot", "is_service_account": True, "addresses": ["10.1.0.0/16"]}).json()
    owner.post(KEYS, json={"name": "app"})
    rotated = owner.post(f"{KEYS}/{made['id']}/rotate", json={"overlap_seconds": 60}).json()
    assert rotated["id"] == made["id"] and rotated["secret"] != made["secret"]
    shown = owner.get(f"{KEYS}/{made['id']}")
    assert [former["hint"] for former in shown.json()["former_secrets"]] == [made["secret"][-4:]]
    assert shown.json()["hint"] == rotated["secret"][-4:] and rotated["secret"] not in shown.text
    changed = owner.patch(f"{KEYS}/{made['id']}", json={"addresses": None, "max_reasoning_effort": "low"}).json()
    assert changed["scopes"] == {"max_reasoning_effort": "low"}
    by_kind = [owner.get(KEYS, params={"is_service_account": kind}).json()["data"] for kind in (True, False)]
    assert [[key["name"] for key in found] for found in by_kind] == [["robot"], ["app"]]


def test_a_key_and_its_budget_are_made_together_or_not_at_all(
    owner: TestClient, control_database: ControlDatabase
) -> None:
    key = owner.post(KEYS, json={"name": "app", "budget_usd": "12.50", "budget_period": "month"}).json()["id"]
    (budget,) = snapshot(control_database).budgets
    assert (budget.scope.level, budget.scope.subject, budget.amount) == ("key", key, 12_500_000_000_000)
    assert budget.is_hard and budget.period == "month"
    assert owner.post(KEYS, json={"name": "app", "budget_usd": "1", "budget_period": "year"}).status_code == 400
    assert len(owner.get(KEYS).json()["data"]) == len(snapshot(control_database).budgets) == 1


@ON_SQLITE
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param", "words"),
    [
        (
            "POST",
            "",
            {"name": "x", "addresses": ["10.0.0.1/8"]},
            400,
            "addresses",
            "'10.0.0.1/8', which is not a network",
        ),
        ("POST", "", {"name": "x", "addresses": []}, 400, "addresses", "empty"),
        ("POST", "", {"name": "x", "priority": "royal"}, 400, "priority", "'royal'"),
        ("POST", "", {"name": "x", "max_reasoning_effort": "all"}, 400, "max_reasoning_effort", "'all'"),
        ("POST", "", {"name": "x", "max_thinking_tokens": -1}, 400, "max_thinking_tokens", "at least 0"),
        ("POST", "", {"name": "x", "budget_usd": "1"}, 400, "body", "go together"),
        ("POST", "", {"name": "x", "budget_usd": "0", "budget_period": "day"}, 400, "budget_usd", "must be above 0"),
        ("PATCH", "/{key}", {}, 400, None, "nothing to change"),
        ("PATCH", "/{key}", {"name": None}, 400, "name", "write text"),
        ("PATCH", "/{key}", {"team": "sales"}, 400, "team", "not a field"),
        ("POST", "/{key}/rotate", {}, 400, "overlap_seconds", "missing"),
        ("POST", "/{key}/rotate", {"overlap_seconds": -1}, 400, "overlap_seconds", "at least 0"),
        ("POST", "/{key}/rotate", {"overlap_seconds": 2_592_001}, 400, "overlap_seconds", "at most 2592000"),
        ("POST", "/key_none/rotate", {"overlap_seconds": 0}, 404, None, "no key 'key_none'"),
    ],
)
def test_a_bad_key_is_refused_by_name(
    owner: TestClient, method: str, path: str, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    key = owner.post(KEYS, json={"name": "app"}).json()["id"]
    reply = owner.request(method, KEYS + path.replace("{key}", key), json=body)
    assert reply.status_code == status, reply.text
    assert words in reply.json()["error"]["message"] and reply.json()["error"]["param"] == param
    assert len(owner.get(KEYS).json()["data"]) == 1


def test_an_identity_provider_is_taken_changed_and_dropped(
    owner: TestClient, control_database: ControlDatabase
) -> None:
    made = owner.post("/v1/issuers", json={**ISSUER, "team_claim": "team", "priority": "batch"})
    assert made.status_code == 201, made.text
    spec = IssuerSpec(
        issuer="https://id.example.com",
        audience="tollkeeper",
        tenant="acme",
        team_claim="team",
        policy=KeyPolicy(priority="batch"),
    )
    assert snapshot(control_database).issuers == (spec,)
    change = {"tenant": None, "tenant_claim": "org", "algorithms": ["EdDSA"], "priority": None}
    changed = owner.patch("/v1/issuers/sso", json=change).json()
    assert (changed["tenant_id"], changed["tenant_claim"], changed["scopes"]) == ("", "org", {})
    (spec,) = snapshot(control_database).issuers
    assert (spec.tenant, spec.tenant_claim, spec.algorithms, spec.policy) == ("", "org", ("EdDSA",), KeyPolicy())
    assert [row["id"] for row in owner.get("/v1/issuers").json()["data"]] == ["sso"]
    assert owner.get("/v1/issuers/sso").json()["user_claim"] == "sub"
    assert owner.delete("/v1/issuers/sso").json() == {"id": "sso", "deleted": True}
    assert snapshot(control_database).issuers == () and owner.get("/v1/issuers/sso").status_code == 404


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "status", "param", "words"),
    [
        ({"issuer": "http://id.example.com"}, 400, "issuer", "begin with https://"),
        ({"issuer": "https://"}, 400, "issuer", "begin with https://"),
        ({"issuer": "https://a:b@id.example.com"}, 400, "issuer", "begin with https://"),
        ({"issuer": "http://localhost.example.com"}, 400, "issuer", "begin with https://"),
        ({"issuer": "https://[::1"}, 400, "issuer", "begin with https://"),
        ({"keys_url": "file:///etc/keys"}, 400, "keys_url", "begin with https://"),
        ({"keys_url": "http://10.0.0.1/keys"}, 400, "keys_url", "begin with https://"),
        ({"audience": ""}, 400, "audience", "at least 1"),
        ({"algorithms": []}, 400, "algorithms", "at least 1"),
        ({"algorithms": ["HS256"]}, 400, "algorithms", "'HS256'"),
        ({"algorithms": ["none"]}, 400, "algorithms", "'none'"),
        ({"tenant": None}, 400, "tenant", "either tenant or tenant_claim"),
        ({"tenant_claim": "org"}, 400, "tenant", "either tenant or tenant_claim"),
        ({"tenant": "nobody"}, 404, None, "'nobody'"),
        ({"models": ["none"]}, 400, "models", "'none'"),
        ({"addresses": ["x"]}, 400, "addresses", "not a network"),
    ],
)
def test_an_identity_provider_that_would_let_anyone_in_is_refused(
    owner: TestClient, change: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    reply = owner.post("/v1/issuers", json={**ISSUER, **change})
    assert reply.status_code == status, reply.text
    assert words in reply.json()["error"]["message"]
    assert (reply.json()["error"]["param"] or "").partition(".")[0] == (param or "")
    assert owner.get("/v1/issuers").json()["data"] == []
    assert owner.post("/v1/issuers", json={**ISSUER, "issuer": "http://127.0.0.1:9/x"}).status_code == 201
    assert owner.patch("/v1/issuers/sso", json=change).status_code == status


@ON_SQLITE
def test_one_audience_of_an_issuer_is_taken_once(owner: TestClient) -> None:
    assert owner.post("/v1/issuers", json=ISSUER).status_code == 201
    for change in ({}, {"id": "again"}):
        assert owner.post("/v1/issuers", json={**ISSUER, **change}).status_code == 409
    assert owner.post("/v1/issuers", json={**ISSUER, "id": "other", "audience": "another"}).status_code == 201
    assert owner.patch("/v1/issuers/other", json={"audience": "tollkeeper"}).status_code == 409
