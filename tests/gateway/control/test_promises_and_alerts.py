"""Objectives, rules, channels and silences over HTTP: made, refused by name, and seen by whom they belong to."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backends.control.alert_log import settle_alerts
from backends.control.database import ControlDatabase
from contracts.rules.alerts import Finding, Rule
from tests.gateway.control.conftest import ON_SQLITE, AsRole

SLO: dict[str, Any] = {
    "id": "chat-ttft",
    "indicator": "ttft",
    "thresholds_ms": {"ttft": "500"},
    "target_percent": "99.5",
    "model": "small",
    "hooks": ["shed_batch"],
}
CHANNEL = {"id": "ops", "kind": "slack", "address": "https://hooks.slack.com/services/T0/B0/hidden"}
RULE: dict[str, Any] = {
    "id": "money",
    "kind": "budget_threshold",
    "channels": ["ops"],
    "settings": {"thresholds": [90]},
}


def error(reply: Any) -> tuple[int, str, str]:
    return reply.status_code, reply.json()["error"]["code"], reply.json()["error"]["message"]


def test_an_objective_is_made_listed_replaced_and_deleted(owner: TestClient) -> None:
    made = owner.post("/v1/slos", json=SLO)
    assert made.status_code == 201, made.text
    assert made.json()["thresholds_ms"] == {"ttft": "500"} and made.json()["target_percent"] == "99.5"
    assert error(owner.post("/v1/slos", json=SLO))[:2] == (409, "conflict")
    changed = {name: value for name, value in SLO.items() if name != "id"} | {"target_percent": "99.9"}
    assert owner.put("/v1/slos/chat-ttft", json=changed).json()["target_percent"] == "99.9"
    assert owner.put("/v1/slos/another", json=changed).status_code == 200
    assert [row["id"] for row in owner.get("/v1/slos").json()["data"]] == ["another", "chat-ttft"]
    assert owner.get("/v1/policy-holds").json()["data"] == []
    assert owner.delete("/v1/slos/chat-ttft").json() == {"id": "chat-ttft", "deleted": True}
    assert error(owner.get("/v1/slos/chat-ttft"))[:2] == (404, "not_found")
    actions = [entry["action"] for entry in owner.get("/v1/audit", params={"action": "slo"}).json()["data"]]
    assert actions == ["slo.delete", "slo.set", "slo.set", "slo.create"]


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"target_percent": "100"}, "slo_target_leaves_no_budget", "no error budget"),
        ({"target_percent": "0"}, "slo_target_promises_nothing", "has no meaning"),
        ({"window_days": 120}, "slo_window_beyond_retention", "kept for 90 days"),
        ({"thresholds_ms": {"ttft": "510"}}, "slo_threshold_not_kept", "nearest are 500 and 600"),
        ({"prompt_class": "short"}, "slo_hook_too_wide", "leave prompt_class out, or the hook"),
        ({"tenant": "nobody"}, "not_found", "nobody"),
        ({"speed": 1}, "invalid_request", "speed"),
        ({"indicator": "luck"}, "invalid_request", "indicator"),
    ],
)
def test_an_objective_that_cannot_be_is_refused_by_name(
    owner: TestClient, change: dict[str, Any], code: str, said: str
) -> None:
    status, found, message = error(owner.post("/v1/slos", json=SLO | change))
    assert (status, found) == (404 if code == "not_found" else 400, code) and said in message


def test_a_channel_s_address_is_never_shown_whole(owner: TestClient) -> None:
    made = owner.post("/v1/alert-channels", json=CHANNEL)
    assert made.json()["address"] == "https://hooks.slack.com/..."
    refused = owner.post("/v1/alert-channels", json=CHANNEL | {"id": "b", "address": "ftp://hidden.example/secret"})
    assert refused.status_code == 400
    everything = made.text + refused.text + owner.get("/v1/alert-channels").text + owner.get("/v1/audit").text
    assert "hidden" not in everything and "secret" not in everything
    kept = owner.post("/v1/alert-channels", json={"id": "pd", "kind": "pagerduty", "address": "a" * 28 + "1234"})
    assert kept.json()["address"] == "...1234"


def test_which_alerts_a_channel_takes_is_changed_without_its_address(owner: TestClient) -> None:
    assert owner.post("/v1/alert-channels", json=CHANNEL | {"severities": ["page"]}).json()["severities"] == ["page"]
    changed = owner.patch("/v1/alert-channels/ops", json={"tenants": ["acme"]}).json()
    assert (changed["severities"], changed["tenants"]) == (["page"], ["acme"])
    changed = owner.patch(
        "/v1/alert-channels/ops", json={"severities": [], "address": "https://chat.example/new"}
    ).json()
    assert (changed["severities"], changed["address"]) == ([], "https://chat.example/...")
    changed = owner.patch("/v1/alert-channels/ops", json={"tenants": None, "report": "week", "address": None}).json()
    assert (changed["tenants"], changed["report"], changed["address"]) == ([], "week", "https://chat.example/...")
    assert owner.patch("/v1/alert-channels/ops", json={"report": None}).json()["report"] == ""
    status, _, message = error(owner.patch("/v1/alert-channels/ops", json={"severities": ["loud"]}))
    assert status == 400 and "severities" in message


def test_a_test_puts_a_notice_in_the_outbox(owner: TestClient) -> None:
    owner.post("/v1/alert-channels", json=CHANNEL)
    sent = owner.post("/v1/alert-channels/ops/test")
    assert sent.status_code == 202 and sent.json()["state"] == "waiting"
    again = owner.post("/v1/alert-channels/ops/test").json()
    assert again["id"] != sent.json()["id"], "every press of the button is a notice"
    listed = owner.get("/v1/alert-deliveries", params={"limit": 1}).json()
    assert (len(listed["data"]), listed["has_more"]) == (1, True)
    rest = owner.get("/v1/alert-deliveries", params={"after": listed["data"][0]["id"]}).json()["data"]
    assert {listed["data"][0]["id"], rest[0]["id"]} == {sent.json()["id"], again["id"]}


def test_rules_name_channels_that_exist_and_a_channel_in_use_stays(owner: TestClient) -> None:
    assert error(owner.post("/v1/alert-rules", json=RULE))[0] == 404
    owner.post("/v1/alert-channels", json=CHANNEL)
    assert owner.post("/v1/alert-rules", json=RULE).status_code == 201
    status, _, message = error(owner.post("/v1/alert-rules", json=RULE | {"id": "b", "settings": {"speed": 1}}))
    assert status == 400 and "no setting 'speed'" in message
    assert error(owner.delete("/v1/alert-channels/ops"))[0] == 409
    assert owner.delete("/v1/alert-rules/money").status_code == 200
    assert owner.delete("/v1/alert-channels/ops").status_code == 200


def test_a_rule_is_changed_switched_off_and_keeps_what_is_left_out(owner: TestClient, as_role: AsRole) -> None:
    owner.post("/v1/alert-channels", json=CHANNEL)
    owner.post("/v1/alert-rules", json=RULE)
    changed = owner.patch("/v1/alert-rules/money", json={"settings": {"thresholds": [50, 100]}})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["settings"], changed.json()["channels"]) == ({"thresholds": [50, 100]}, ["ops"])
    off = owner.patch("/v1/alert-rules/money", json={"is_active": False, "channels": []}).json()
    assert (off["is_active"], off["channels"], off["settings"]) == (False, [], {"thresholds": [50, 100]})
    status, _, message = error(owner.patch("/v1/alert-rules/money", json={"settings": {"speed": 1}}))
    assert status == 400 and "no setting 'speed'" in message
    assert error(owner.patch("/v1/alert-rules/money", json={"channels": ["nowhere"]}))[0] == 404
    assert error(owner.patch("/v1/alert-rules/money", json={"kind": "slo_burn"}))[0] == 400, "a rule keeps its kind"
    assert error(owner.patch("/v1/alert-rules/nothing", json={}))[0] == 404
    assert error(as_role("admin", "acme").patch("/v1/alert-rules/money", json={"is_active": True}))[0] == 404
    entry = owner.get("/v1/audit", params={"action": "alert_rule.update"}).json()["data"][0]
    assert entry["detail"]["before"]["is_active"] and not entry["detail"]["after"]["is_active"]


def test_an_alert_is_taken_up_once_by_those_it_is_about(
    owner: TestClient, as_role: AsRole, control_database_url: str
) -> None:
    database = ControlDatabase(control_database_url)
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    about = [Finding("a", "acme's", tenant="acme", team="search"), Finding("g", "globex'", tenant="globex")]
    with database.session() as session:
        settle_alerts(session, [(Rule.of("money", "budget_threshold", "", (), {}), about)], now)
    database.close()
    mine, others = (
        next(row for row in owner.get("/v1/alerts").json()["data"] if row["tenant"] == tenant)
        for tenant in ("acme", "globex")
    )
    assert (mine["acknowledged_at"], mine["acknowledged_by"]) == (None, None)
    lead = as_role("team_lead", "acme", "search")
    assert [row["id"] for row in lead.get("/v1/alerts", params={"open": True}).json()["data"]] == [mine["id"]]
    assert as_role("team_lead", "acme", "sales").get("/v1/alerts").json()["data"] == []
    taken = lead.post(f"/v1/alerts/{mine['id']}/acknowledge").json()
    assert taken["acknowledged_by"].startswith("team_lead's token") and taken["resolved_at"] is None
    again = owner.post(f"/v1/alerts/{mine['id']}/acknowledge").json()
    assert (again["acknowledged_at"], again["acknowledged_by"]) == (taken["acknowledged_at"], taken["acknowledged_by"])
    assert error(lead.post(f"/v1/alerts/{others['id']}/acknowledge"))[0] == 404
    assert error(owner.post("/v1/alerts/alt_nothing/acknowledge"))[0] == 404


def test_a_tenant_s_admin_has_rules_channels_and_objectives_of_its_own(owner: TestClient, as_role: AsRole) -> None:
    owner.post("/v1/alert-channels", json=CHANNEL)
    owner.post("/v1/slos", json=SLO)
    admin = as_role("admin", "acme")
    assert error(admin.post("/v1/alert-channels", json=CHANNEL | {"id": "own"}))[0] == 404, "that is the platform's"
    own = CHANNEL | {"id": "own", "tenant": "acme"}
    assert admin.post("/v1/alert-channels", json=own).status_code == 201
    rule = {"id": "own", "kind": "slo_burn", "tenant": "acme", "channels": ["own"]}
    assert error(admin.post("/v1/alert-rules", json=rule | {"channels": ["ops"]}))[0] == 404
    assert admin.post("/v1/alert-rules", json=rule).status_code == 201
    assert error(admin.post("/v1/alert-rules", json=rule | {"id": "g", "tenant": "globex"}))[0] == 404
    assert error(admin.delete("/v1/alert-channels/ops"))[0] == 404
    assert error(admin.delete("/v1/slos/chat-ttft"))[0] == 404
    mine = {key: value for key, value in SLO.items() if key != "id"} | {"tenant": "acme"}
    assert error(admin.put("/v1/slos/chat-ttft", json=mine))[0] == 409, "the id is the platform's"
    assert admin.put("/v1/slos/acme-ttft", json=mine).status_code == 200
    assert [row["id"] for row in admin.get("/v1/slos").json()["data"]] == ["acme-ttft"]
    assert [row["id"] for row in admin.get("/v1/alert-channels").json()["data"]] == ["own"]
    other = as_role("admin", "globex")
    assert other.get("/v1/alert-rules").json()["data"] == []


def test_silences_end_and_are_seen_by_their_tenant(owner: TestClient, as_role: AsRole) -> None:
    admin = as_role("admin", "acme")
    past = admin.post("/v1/alert-silences", json={"tenant": "acme", "ends_at": "2020-01-01T00:00:00Z"})
    assert past.status_code == 400 and "which is past" in past.text
    made = admin.post("/v1/alert-silences", json={"tenant": "acme", "ends_at": "2100-01-01T00:00:00Z"})
    assert made.status_code == 201
    assert as_role("admin", "globex").get("/v1/alert-silences").json()["data"] == []
    assert len(owner.get("/v1/alert-silences").json()["data"]) == 1
    assert admin.delete(f"/v1/alert-silences/{made.json()['id']}").status_code == 200


def test_a_team_lead_reads_objectives_and_no_channels(owner: TestClient, as_role: AsRole) -> None:
    lead = as_role("team_lead", "acme", "search")
    assert lead.get("/v1/slos").status_code == 200
    assert lead.post("/v1/slos", json=SLO | {"tenant": "acme"}).status_code == 403
    assert lead.get("/v1/alert-channels").status_code == 403
