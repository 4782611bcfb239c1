"""Guardrails over the control plane's HTTP, and what gateways read of them."""

import json
from typing import Any

import pytest
from sqlalchemy import text

from backends.control.database import ControlDatabase
from backends.control.guardrails import UNREADABLE
from backends.control.snapshot import read_snapshot
from contracts.guardrails.policy import GuardrailPolicy
from tests.gateway.control.conftest import ON_SQLITE

STAGE = {"name": "cards", "detector": "pii", "action": "redact", "settings": {"kinds": ["card"]}}
RULES = {"tenants": ["demo"], "stages": [STAGE]}


@pytest.fixture
def platform(as_role) -> Any:
    return as_role("owner")


def live(url: str) -> tuple[GuardrailPolicy, ...]:
    database = ControlDatabase(url)
    with database.session() as session:
        found = read_snapshot(session).snapshot.guardrails
    database.close()
    return found


def test_a_guardrail_is_made_changed_tried_and_deleted_and_the_audit_says_so(platform, control_database_url) -> None:
    made = platform.post("/v1/guardrails", json={"name": "no-pii", "rules": RULES})
    assert made.status_code == 201, made.json()
    assert platform.post("/v1/guardrails", json={"name": "no-pii", "rules": RULES}).status_code == 409
    (policy,) = live(control_database_url)
    assert (policy.name, policy.tenants, policy.stages[0].action) == ("no-pii", ("demo",), "redact")
    tried = platform.post("/v1/guardrails/no-pii/test", json={"text": "4111 1111 1111 1111!"}).json()
    assert tried == {"verdicts": ["input/cards/redact:card=1"], "blocked_by": "", "text": "[card]!"}
    changed = {"stages": [{**STAGE, "action": "block", "dry_run": True}]}
    assert platform.patch("/v1/guardrails/no-pii", json={"rules": changed}).status_code == 200
    assert live(control_database_url)[0].stages[0].dry_run
    assert [one["id"] for one in platform.get("/v1/guardrails").json()["data"]] == ["no-pii"]
    assert platform.delete("/v1/guardrails/no-pii").json() == {"id": "no-pii", "deleted": True}
    assert platform.get("/v1/guardrails/no-pii").status_code == 404
    assert live(control_database_url) == ()
    told = [one["action"] for one in platform.get("/v1/audit").json()["data"] if one["action"].startswith("guardrail")]
    assert sorted(told) == ["guardrail.create", "guardrail.delete", "guardrail.update"]


def test_a_guardrail_for_an_unknown_tenant_is_refused(platform) -> None:
    typo = {"name": "typo", "rules": {**RULES, "tenants": ["demo", "demmo"]}}
    refused = platform.post("/v1/guardrails", json=typo)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "rules.tenants"
    assert refused.json()["error"]["message"].startswith("tenants names 'demmo', which does not exist")
    assert platform.post("/v1/guardrails", json={"name": "typo", "rules": RULES}).status_code == 201
    assert platform.patch("/v1/guardrails/typo", json={"rules": typo["rules"]}).status_code == 400


def test_a_guardrail_that_asks_others_is_set_where_nobody_can_be_asked(platform, control_database_url) -> None:
    asks = {"url": "https://m.example/v1", "on_failure": "fail_closed", "key_ref": "env:ONLY_GATEWAYS_API_KEY"}
    rules = {"stages": [{"name": "m", "detector": "moderation", "settings": asks}]}
    assert platform.post("/v1/guardrails", json={"name": "mod", "rules": rules}).status_code == 201
    tried = platform.post("/v1/guardrails/mod/test", json={"text": "anything"})
    assert (tried.status_code, tried.json()["verdicts"]) == (200, [])
    rules["stages"][0]["settings"] = {**asks, "key_ref": "sk-in-clear"}
    refused = platform.patch("/v1/guardrails/mod", json={"rules": rules})
    assert refused.status_code == 400 and "sk-in-clear" not in refused.text


@ON_SQLITE
@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"stages": []}, "stages"),
        ({"stages": [{**STAGE, "detector": "nothing"}]}, "there is no detector 'nothing'"),
        ({"stages": [{**STAGE, "detector": "deny", "settings": {"expressions": {"e": "(?=a)"}}}]}, "looking around"),
        ({"stages": [{**STAGE, "colour": 1}]}, "colour"),
    ],
)
def test_a_guardrail_that_no_gateway_could_use_is_refused(platform, control_database_url, rules, said) -> None:
    refused = platform.post("/v1/guardrails", json={"name": "mine", "rules": rules})
    assert refused.status_code == 400 and said in str(refused.json()["error"])
    assert live(control_database_url) == ()


def test_only_the_platforms_people_see_and_set_guardrails(as_role, platform) -> None:
    assert platform.post("/v1/guardrails", json={"name": "no-pii", "rules": RULES}).status_code == 201
    assert as_role("admin", tenant="demo").get("/v1/guardrails").status_code == 403
    assert as_role("finance").post("/v1/guardrails", json={"name": "x", "rules": RULES}).status_code == 403


def test_a_guardrail_that_cannot_be_read_refuses_what_it_covers_rather_than_letting_it_through(
    platform, control_database_url
) -> None:
    assert platform.post("/v1/guardrails", json={"name": "no-pii", "rules": RULES}).status_code == 201
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        session.execute(text("""UPDATE guardrails SET rules = '{"tenants": ["demo"], "stages": 7}'"""))
    (policy,) = live(control_database_url)
    assert (policy.tenants, policy.stages[0].detector) == (("demo",), UNREADABLE)
    with database.session() as session:
        many = json.dumps({**RULES, "tenants": [f"t{number}" for number in range(1001)]})
        session.execute(text("UPDATE guardrails SET rules = :rules"), {"rules": many})
    database.close()
    (policy,) = live(control_database_url)
    assert (policy.tenants, policy.stages[0].detector) == ((), UNREADABLE)
