"""What each role may do on the control plane: every route has a decision, and what has none is refused."""

from typing import Any, Final

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from contracts.control import Role
from gateway.control.permissions import OPEN_PATHS, ScopedRole, is_allowed
from tests.gateway.control.conftest import AsRole

pytestmark = [
    pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("control_database_url"),
]

# owner O, admin A, finance F; within a tenant: admin a, finance f, team lead l, developer d; a directory D has none
# of these. Path -> who reads, who writes.
EXPECTED: Final = {
    "/v1/tenants": ("OAFafl", "OA"),
    "/v1/tenants/{tenant}": ("OAFafl", "OA"),
    "/v1/tenants/{tenant}/teams": ("OAFafl", "OAa"),
    "/v1/tenants/{tenant}/teams/{team}": ("OAFafl", "OAa"),
    "/v1/tenants/{tenant}/teams/{team}/projects": ("OAFafl", "OAa"),
    "/v1/tenants/{tenant}/teams/{team}/projects/{project}": ("OAFafl", "OAa"),
    "/v1/tenants/{tenant}/keys": ("OAal", "OAal"),
    "/v1/tenants/{tenant}/keys/{key}": ("OAal", "OAal"),
    "/v1/tenants/{tenant}/keys/{key}/rotate": ("", "OAal"),
    "/v1/tenants/{tenant}/limits": ("OAFafl", "OAal"),
    "/v1/tenants/{tenant}/limits/{limit_id}": ("OAFafl", "OAal"),
    "/v1/tenants/{tenant}/budgets": ("OAFafl", "OAal"),
    "/v1/tenants/{tenant}/budgets/{budget_id}": ("OAFafl", "OAal"),
    "/v1/tenants/{tenant}/budgets/{budget_id}/recount": ("", "OAal"),
    "/v1/models": ("OAal", "OA"),
    "/v1/models/{model}": ("OAal", "OA"),
    "/v1/routes": ("OAal", "OA"),
    "/v1/routes/{route}": ("OAal", "OA"),
    "/v1/routes/{route}/explain": ("OAal", "OA"),
    "/v1/rollouts": ("OA", "OA"),
    "/v1/rollouts/{rollout}": ("OA", "OA"),
    "/v1/rollouts/{rollout}/standing": ("OA", ""),
    "/v1/rollouts/{rollout}/pause": ("", "OA"),
    "/v1/rollouts/{rollout}/resume": ("", "OA"),
    "/v1/rollouts/{rollout}/advance": ("", "OA"),
    "/v1/rollouts/{rollout}/promote": ("", "OA"),
    "/v1/rollouts/{rollout}/abort": ("", "OA"),
    "/v1/configuration": ("OA", "OA"),
    "/v1/pools": ("OA", "OA"),
    "/v1/pools/{pool}": ("OA", "OA"),
    "/v1/pools/{pool}/targets": ("OA", "OA"),
    "/v1/pools/{pool}/targets/{target}": ("OA", "OA"),
    "/v1/guardrails": ("OA", "OA"),
    "/v1/mcp-servers": ("OA", "OA"),
    "/v1/mcp-servers/{name}": ("OA", "OA"),
    "/v1/tool-rules": ("OA", "OA"),
    "/v1/tool-rules/{name}": ("OA", "OA"),
    "/v1/guardrails/{name}": ("OA", "OA"),
    "/v1/guardrails/{name}/test": ("OA", "OA"),
    "/v1/playbooks": ("OA", "OA"),
    "/v1/playbooks/{provider}": ("OA", "OA"),
    "/v1/prices": ("OAFaf", "OAF"),
    "/v1/prices/{version}": ("OAFaf", "OAF"),
    "/v1/standard-costs": ("OAFaf", "OAF"),
    "/v1/standard-costs/{version}": ("OAFaf", "OAF"),
    "/v1/rates": ("OAFaf", "OAF"),
    "/v1/rates/{version}": ("OAFaf", "OAF"),
    "/v1/slos": ("OAFafl", "OAa"),
    "/v1/slos/{slo_id}": ("OAFafl", "OAa"),
    "/v1/policy-holds": ("OAFafl", ""),
    "/v1/alert-rules": ("OAFaf", "OAa"),
    "/v1/alert-rules/{rule_id}": ("OAFaf", "OAa"),
    "/v1/alert-channels": ("OAFaf", "OAa"),
    "/v1/alert-channels/{channel_id}": ("OAFaf", "OAa"),
    "/v1/alert-channels/{channel_id}/test": ("", "OAa"),
    "/v1/alert-silences": ("OAFaf", "OAa"),
    "/v1/alert-silences/{silence_id}": ("OAFaf", "OAa"),
    "/v1/alert-deliveries": ("OAFaf", ""),
    "/v1/alerts": ("OAFafl", ""),
    "/v1/alerts/{alert_id}/acknowledge": ("", "OAFafl"),
    "/v1/tokens": ("OAa", "OAa"),
    "/v1/tokens/{token}": ("OAa", "OAa"),
    "/v1/accounts": ("OAa", "OAa"),
    "/v1/accounts/{account}": ("OAa", "OAa"),
    "/v1/sessions/current": ("OAFafld", "OAFafld"),
    # Own keys are of accounts, and these clients have tokens: what they may is refused for want of an account alone.
    "/v1/self/keys": ("", "OAFafld"),
    "/v1/self/keys/{key}": ("", ""),
    "/v1/saved-views": ("OAFafl", "OAFafl"),
    "/v1/saved-views/{view}": ("OAFafl", "OAFafl"),
    "/v1/issuers": ("OA", "OA"),
    "/v1/issuers/{issuer}": ("OA", "OA"),
    "/v1/audit": ("OAFaf", ""),
    "/v1/audit/verification": ("OAFaf", ""),
    "/v1/unreadable-rows": ("OA", ""),
    "/v1/unreadable-rows/{table}/{row}": ("", "OA"),
    "/v1/stored-keys": ("OA", ""),
    "/v1/stored-keys/{name}": ("", "OA"),
    "/v1/stored-keys/reseal": ("", "OA"),
    "/v1/abuse": ("OAa", ""),
    "/v1/abuse/{incident_id}": ("OAa", ""),
}


def operations(client: TestClient) -> list[tuple[str, str]]:
    assert isinstance(client.app, FastAPI)
    paths = client.app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def error_of(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


def test_every_route_does_what_the_table_says_for_every_role(owner: TestClient, as_role: AsRole) -> None:
    clients = {
        "O": owner,
        "A": as_role("admin"),
        "F": as_role("finance"),
        "a": as_role("admin", "acme"),
        "f": as_role("finance", "acme"),
        "l": as_role("team_lead", "acme", "search"),
        "d": as_role("developer", "acme", "search"),
        "D": as_role("directory", "acme"),
    }
    guarded = [each for each in operations(owner) if each[1] not in OPEN_PATHS]
    assert {path for _, path in guarded} == set(EXPECTED), "a route without a decision, or a decision without a route"
    wrong = []
    for method, path in guarded:
        allowed = EXPECTED[path][method != "GET"]
        url = path.replace("{tenant}", "acme").replace("{team}", "search").replace("{", "").replace("}", "")
        for letter in reversed(clients):  # the owner last: what it deletes is there for the others
            reply = clients[letter].request(method, url, json={} if method in ("POST", "PATCH") else None)
            is_refused = reply.status_code == 403 and reply.json()["error"]["code"] == "permission_denied"
            if is_refused == (letter in allowed) or reply.status_code >= 500:
                wrong.append((letter, method, path, reply.status_code))
    assert wrong == []


def test_a_route_that_nobody_decided_about_is_refused_to_the_owner_too(owner: TestClient) -> None:
    assert isinstance(owner.app, FastAPI)

    def undecided() -> str:
        return "served"

    owner.app.add_api_route("/v1/secrets", undecided, include_in_schema=False)
    owner.app.add_api_route("/metrics", undecided, include_in_schema=False)
    assert error_of(owner.get("/v1/secrets")) == (403, "permission_denied")
    assert owner.get("/metrics").status_code == 401
    assert not any(is_allowed(standing, "GET", "/v1/secrets") for standing in ScopedRole)
    assert not any(is_allowed(standing, "GET", "/v1/tenantsx") for standing in ScopedRole)


def test_a_lead_without_a_tenant_would_still_be_a_lead() -> None:
    assert ScopedRole.of(Role.TEAM_LEAD, "") is ScopedRole.TEAM_LEAD
    assert ScopedRole.of(Role.OWNER, "acme") is ScopedRole.TEAM_LEAD  # no such token is made; the least it could be


def test_another_tenant_does_not_exist_for_who_is_bound_to_one(owner: TestClient, as_role: AsRole) -> None:
    for client in (as_role("admin", "acme"), as_role("finance", "acme"), as_role("team_lead", "acme", "search")):
        assert [row["id"] for row in client.get("/v1/tenants").json()["data"]] == ["acme"]
        theirs, missing = client.get("/v1/tenants/globex"), client.get("/v1/tenants/nobody")
        assert error_of(theirs) == error_of(missing) == (404, "not_found")
        assert theirs.json()["error"]["message"].replace("globex", "nobody") == missing.json()["error"]["message"]
        assert client.get("/v1/tenants/globex/teams").status_code == 404
    assert as_role("admin", "acme").post("/v1/tenants/globex/keys", json={"name": "app"}).status_code == 404
    assert owner.get("/v1/tenants/globex/keys").json()["data"] == []


def test_a_lead_manages_the_teams_keys_and_sees_no_others(owner: TestClient, as_role: AsRole) -> None:
    lead, keys = as_role("team_lead", "acme", "search"), "/v1/tenants/acme/keys"
    of_sales = owner.post(keys, json={"name": "theirs", "team": "sales"}).json()["id"]
    of_nobody = owner.post(keys, json={"name": "shared"}).json()["id"]
    for body in ({"name": "app"}, {"name": "app", "team": "sales"}):
        assert lead.post(keys, json=body).status_code == 404
    made = lead.post(keys, json={"name": "app", "team": "search"})
    assert made.status_code == 201
    mine = made.json()["id"]
    for query in ("", "?team=sales"):
        assert [row["id"] for row in lead.get(keys + query).json()["data"]] == [mine]
    for other in (of_sales, of_nobody):
        assert lead.get(f"{keys}/{other}").status_code == 404
        assert lead.patch(f"{keys}/{other}", json={"name": "mine now"}).status_code == 404
        assert lead.post(f"{keys}/{other}/rotate", json={"overlap_seconds": 0}).status_code == 404
        assert lead.delete(f"{keys}/{other}").status_code == 404
    assert lead.patch(f"{keys}/{mine}", json={"name": "renamed"}).json()["name"] == "renamed"
    assert lead.delete(f"{keys}/{mine}").json()["revoked_at"]
    assert [team["id"] for team in lead.get("/v1/tenants/acme/teams").json()["data"]] == ["search"]
    assert lead.get("/v1/tenants/acme/teams/sales").status_code == 404


@pytest.mark.parametrize("noun", ["limits", "budgets"])
def test_a_lead_sets_the_rules_of_its_teams_keys_and_projects_but_not_the_teams_own(
    owner: TestClient, as_role: AsRole, noun: str
) -> None:
    rules = f"/v1/tenants/acme/{noun}"
    amount = {"metric": "requests", "window": "minute", "amount": 5} if noun == "limits" else {"period": "month"}
    amount |= {} if noun == "limits" else {"amount_usd": "5"}
    raised = {"amount": 500} if noun == "limits" else {"amount_usd": "500"}
    lead = as_role("team_lead", "acme", "search")
    owner.post("/v1/tenants/acme/teams/search/projects", json={"id": "ranking", "name": "Ranking"})
    key = lead.post("/v1/tenants/acme/keys", json={"name": "app", "team": "search"}).json()["id"]
    other = owner.post("/v1/tenants/acme/keys", json={"name": "app", "team": "sales"}).json()["id"]
    not_mine = [("tenant", ""), ("team", "search"), ("team", "sales"), ("key", other), ("key", "*"), ("user", "u")]
    for level, subject in not_mine:
        body = {"level": level, "subject": subject, **amount}
        assert lead.post(rules, json=body).status_code == 403, level
        made = owner.post(rules, json=body)
        assert made.status_code == 201, made.text
        assert lead.patch(f"{rules}/{made.json()['id']}", json=raised).status_code == 403
        assert lead.delete(f"{rules}/{made.json()['id']}").status_code == 403
        is_shown = (level, subject) == ("team", "search")
        assert lead.get(f"{rules}/{made.json()['id']}").status_code == (200 if is_shown else 404)
    for level, subject in (("key", key), ("project", "search/ranking")):
        made = lead.post(rules, json={"level": level, "subject": subject, **amount})
        assert made.status_code == 201, made.text
        assert lead.patch(f"{rules}/{made.json()['id']}", json=raised).status_code == 200
    shown = {(row["level"], row["subject"]) for row in lead.get(rules).json()["data"]}
    assert shown == {("team", "search"), ("key", key), ("project", "search/ranking")}


def test_a_tenants_administrator_does_not_set_what_holds_the_tenant(owner: TestClient, as_role: AsRole) -> None:
    admin, budgets = as_role("admin", "acme"), "/v1/tenants/acme/budgets"
    body = {"level": "tenant", "period": "month", "amount_usd": "5"}
    assert admin.post(budgets, json=body).status_code == 403
    made = owner.post(budgets, json=body).json()["id"]
    assert admin.patch(f"{budgets}/{made}", json={"amount_usd": "50"}).status_code == 403
    assert admin.get(f"{budgets}/{made}").status_code == 200
    assert admin.post(budgets, json={**body, "level": "team", "subject": "search"}).status_code == 201


def test_prices_of_another_tenant_are_not_shown(owner: TestClient, as_role: AsRole) -> None:
    price = {"model": "m", "usd_per_mtok": {"input_text": "1"}}
    for version, tenant in (("all/1", None), ("acme/1", "acme"), ("globex/1", "globex")):
        assert owner.post("/v1/prices", json={**price, "version": version, "tenant": tenant}).status_code == 201
    shown = {row["version"] for row in as_role("finance", "acme").get("/v1/prices").json()["data"]}
    assert {"all/1", "acme/1"} <= shown and "globex/1" not in shown
    assert "globex/1" in {row["version"] for row in as_role("finance").get("/v1/prices").json()["data"]}
