"""Guardrails, abuse and rollouts as the pages tell of them, from the control plane's own answers."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

MOMENT = "2026-11-22T10:00:00Z"
STAGES = [
    {"name": "pii", "detector": "pii", "action": "redact"},
    {"name": "words", "detector": "deny", "dry_run": True},
    {"name": "leak", "detector": "secrets", "direction": "output", "action": "block"},
]
SAID: dict[str, list[dict[str, Any]]] = {
    "/v1/guardrails": [{"id": "bank", "rules": {"tenants": ["acme"], "stages": STAGES}, "created_at": MOMENT}],
    "/v1/abuse": [
        {
            **{"id": "i1", "tenant": "acme", "key": "key_1", "kind": "address_sharing", "summary": "Nine addresses."},
            **{"first_at": MOMENT, "is_open": True, "peak": 9, "limit": 5, "throttled": 4},
        }
    ],
    "/v1/rollouts": [
        {
            **{"id": "r1", "route": "chat", "incumbent": "old", "candidate": "new", "state": "rolled_back"},
            **{"percent": 5.0, "step": 0, "reason": "errors 9 % against 1 %", "updated_at": MOMENT},
        }
    ],
}


def _draw(said: "dict[str, Any]", tenant: str | None, what: str) -> None:
    from types import SimpleNamespace  # here: Streamlit runs this function's text alone
    from typing import Any
    from zoneinfo import ZoneInfo

    from contracts.errors import PermissionDenied
    from dashboard.views.admin_guardrails import draw_guardrails
    from dashboard.views.routing_rollouts import draw_rollouts

    class Plane:
        def get(self, path: str, **_: object) -> dict[str, Any]:
            if path == "/v1/abuse" and tenant == "forbidden":
                raise PermissionDenied("this is for administrators")
            return {"data": said.get(path, []), "has_more": False}

        def get_all(self, path: str) -> list[dict[str, Any]]:
            return list(self.get(path)["data"])

    visit: Any = SimpleNamespace(control=Plane(), viewer=SimpleNamespace(tenant=tenant, zone=ZoneInfo("UTC")))
    (draw_guardrails if what == "guardrails" else draw_rollouts)(visit)


def drawn(what: str, said: dict[str, Any], tenant: str | None = None) -> AppTest:
    app = AppTest.from_function(_draw, kwargs={"said": said, "tenant": tenant, "what": what}, default_timeout=30).run()
    assert not app.exception, app.exception[0].value
    return app


def test_guardrails_are_told_by_side_and_order() -> None:
    policies, incidents = (each.value for each in drawn("guardrails", SAID).dataframe)
    assert policies["Before the model"][0] == "pii: redact › words: block (dry)"
    assert policies["After the model"][0] == "leak: block"
    assert (policies["Tenants"][0], policies["Routes"][0]) == ("acme", "all")
    assert incidents["Kind"][0] == "address sharing" and incidents["Refused"][0] == 4


def test_a_rollouts_state_and_reason_are_told() -> None:
    (table,) = (each.value for each in drawn("rollouts", SAID).dataframe)
    assert table["State"][0] == "✗ rolled back" and table["Why"][0] == "errors 9 % against 1 %"
    assert table["Step"][0] == 1


@pytest.mark.parametrize(
    ("what", "words"), [("guardrails", "There is no guardrail"), ("rollouts", "No model is being rolled out")]
)
def test_nothing_is_said_as_nothing(what: str, words: str) -> None:
    app = drawn(what, {})
    assert not app.dataframe and any(words in caption.value for caption in app.caption)


def test_who_is_bound_to_a_tenant_sees_no_policy_of_the_platform() -> None:
    app = drawn("guardrails", SAID, "acme")
    assert len(app.dataframe) == 1
    assert "Not for you" in drawn("guardrails", SAID, "forbidden").caption[0].value
