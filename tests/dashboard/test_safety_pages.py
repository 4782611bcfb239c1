"""Guardrails, abuse, rollouts and the audit as the pages tell of them, from the control plane's own answers."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

MOMENT = "2026-11-22T10:00:00Z"
STAGES = [
    {"name": "pii", "detector": "pii", "action": "redact"},
    {"name": "words", "detector": "deny", "dry_run": True},
    {"name": "leak", "detector": "secrets", "direction": "output", "action": "block"},
]
MARKERS = {"name": "markers", "detector": "canary", "direction": "both", "action": "flag"}
ARM = {
    **{"requests": 66, "errors": 1, "refusals": 0, "ttft_p95_ms": 12.5, "inter_token_p95_ms": None},
    **{"duration_p95_ms": 80.0, "mean_cost_usd": 1.2e-05, "mean_output_tokens": 20.0},
}
VERIFIED: dict[str, Any] = {
    **{"is_sound": True, "checked_at": MOMENT, "took_seconds": 0.1, "is_running": False, "problem": ""},
    "places": [
        {
            **{"place": "control", "entries": 61, "last": 61, "checkpoints": 3, "signed_upto": 60},
            **{"confirmed_upto": None, "erased": None, "notes": ["a torn end"], "fault": None},
        },
        {
            **{"place": "control database", "entries": 57, "last": 57, "checkpoints": None, "signed_upto": None},
            **{"confirmed_upto": 56, "erased": 2, "notes": [], "fault": None},
        },
    ],
}
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
    from datetime import UTC, datetime
    from types import SimpleNamespace  # here: Streamlit runs this function's text alone
    from typing import Any
    from zoneinfo import ZoneInfo

    import streamlit

    from analytics.comparison.arms import ReportLine, RolloutReport
    from analytics.comparison.interval import Interval
    from analytics.guardrails import StageCount
    from contracts.errors import PermissionDenied
    from dashboard.formats import Formats
    from dashboard.views.admin_audit import draw_audit
    from dashboard.views.admin_guardrails import draw_guardrails
    from dashboard.views.routing_rollouts import draw_rollouts

    class Plane:
        def get(self, path: str, **_: object) -> dict[str, Any]:
            if path == "/v1/abuse" and tenant == "forbidden":
                raise PermissionDenied("this is for administrators")
            if isinstance(said.get(path), dict):
                return dict(said[path])
            return {"data": said.get(path, []), "has_more": False}

        def get_all(self, path: str) -> list[dict[str, Any]]:
            return list(self.get(path)["data"])

    def read(question: object, *arguments: object, **_: object) -> object:
        if what == "guardrails":
            assert arguments[-1] == tenant  # what is counted is bound to who looks
            if "found" not in said:
                return []
            return [
                StageCount("acme", "pii", "input", "redact", False, 200, 30, 60, {"email": 10, "card": 30}),
                StageCount("acme", "words", "input", "block", True, 200, 1, 1, {"keyword": 1}),
            ]
        lines = (
            ReportLine("error rate", "arms", 0.0, 0.1, Interval(0.1, -0.025, 0.4, 20, "newcombe"), "difference"),
            ReportLine("cost (USD)", "arms", 1.2e-05, 2.4e-05, Interval(2.0, float("-inf"), 2.5, 1, "b"), "ratio"),
        )
        return RolloutReport("r1", start, start, 66, 50, 0, lines)

    start = datetime(2026, 11, 22, 10, tzinfo=UTC)
    if what == "rollouts" and "/v1/rollouts/r1/standing" in said:
        streamlit.query_params["rollout"] = "r1"
    visit: Any = SimpleNamespace(
        control=Plane(),
        viewer=SimpleNamespace(tenant=tenant, zone=ZoneInfo("UTC")),
        formats=Formats("en_US", ZoneInfo("UTC")),
        now=start,
        scope=SimpleNamespace(start=start, end=start),
        read_slow=read,
        read_beside=read,
    )
    {"guardrails": draw_guardrails, "rollouts": draw_rollouts, "audit": draw_audit}[what](visit)


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


def test_a_stage_on_both_sides_is_told_on_both_and_what_stages_found_is_counted() -> None:
    policy = {**SAID["/v1/guardrails"][0], "rules": {"stages": [STAGES[0], MARKERS]}}
    app = drawn("guardrails", {"/v1/guardrails": [policy], "found": []})
    policies, found = (each.value for each in app.dataframe)
    assert policies["Before the model"][0] == "pii: redact › markers: flag"
    assert policies["After the model"][0] == "markers: flag"
    assert found["Action"].tolist() == ["redacted", "dry run: would have blocked"]
    assert (found["Share of requests"][0], found["Kinds"][0]) == (15.0, "card 30, email 10")


def test_a_rollouts_state_and_reason_are_told() -> None:
    (table,) = (each.value for each in drawn("rollouts", SAID).dataframe)
    assert table["State"][0] == "✗ rolled back" and table["Reason"][0] == "errors 9 % against 1 %"
    assert table["Step"][0] == 1


def test_a_chosen_rollout_is_told_with_both_arms_and_what_is_passed() -> None:
    standing = {"gateways": 2, "step_requests": 50, "incumbent": ARM, "candidate": ARM, "breaches": ["errors: 9 %"]}
    app = drawn("rollouts", {**SAID, "/v1/rollouts/r1/standing": standing})
    _, arms, lines = (each.value for each in app.dataframe)
    assert arms["Model"].tolist() == ["old", "new"] and arms["Requests"].tolist() == [66, 66]
    assert lines["Incumbent"].tolist() == ["0 %", "0.000012"]
    assert lines["Compared"].tolist() == ["difference 10 %", "ratio 2"]
    assert lines["From"][0] == "-2.5 %" and lines["From"].isna()[1]  # what one observation says nothing of
    assert [(each.label, each.value) for each in app.metric][:2] == [
        ("Incumbent's requests", "66"),
        ("Candidate's requests", "50"),
    ]
    assert any("errors: 9 %" in each.value.replace("\\", "") for each in app.markdown)


def test_the_audit_says_up_to_where_it_verifies() -> None:
    app = drawn("audit", {"/v1/audit/verification": VERIFIED})
    assert {each.label: each.value for each in app.metric} == {
        "The log": "verified", "Changes up to entry": "57", "Verified up to": "56", "Checkpoints": "3",
    }  # fmt: skip
    table = app.dataframe[0].value
    assert table["What"].tolist() == ["changes of the configuration", "external signed log (audit/control)"]
    assert table["Remarks"].tolist() == ["2 entries were emptied by erasures, which are recorded", "a torn end"]


def test_an_audit_that_was_changed_names_the_entry() -> None:
    fault = {"what": "the entry was changed", "segment": "", "entry": 12}
    chain, changes = VERIFIED["places"]
    said = {**VERIFIED, "is_sound": False, "places": [chain, {**changes, "fault": fault}]}
    app = drawn("audit", {"/v1/audit/verification": said})
    assert app.metric[0].value == "was changed"
    assert app.dataframe[0].value["State"].tolist() == ["✗ changed", "✓ verified"]
    assert app.dataframe[0].value["Remarks"][0].startswith("entry 12: the entry was changed")


@pytest.mark.parametrize(
    ("is_running", "problem", "words"), [(True, "", "It is being verified"), (False, "no key is there", "no key")]
)
def test_an_audit_without_a_finding_says_why(is_running: bool, problem: str, words: str) -> None:
    said = {**VERIFIED, "is_sound": None, "is_running": is_running, "problem": problem, "places": []}
    app = drawn("audit", {"/v1/audit/verification": said})
    assert not app.metric and any(words in each.value for each in app.caption)


@pytest.mark.parametrize(("what", "words"), [("guardrails", "No guardrails"), ("rollouts", "No rollouts")])
def test_nothing_is_said_as_nothing(what: str, words: str) -> None:
    app = drawn(what, {})
    assert not app.dataframe and any(words in caption.value for caption in app.caption)


def test_who_is_bound_to_a_tenant_sees_no_policy_of_the_platform() -> None:
    app = drawn("guardrails", SAID, "acme")
    assert len(app.dataframe) == 1
    assert "You don't have access" in drawn("guardrails", SAID, "forbidden").caption[0].value
