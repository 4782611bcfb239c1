"""Rollouts over the control plane's HTTP, and gateways that agree on them through its database."""

from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from algorithms.rollouts.rollout_tally import ArmTally, ObservedRequest, RolloutTotals
from backends.control.database import ControlDatabase
from backends.control.snapshot import read_snapshot
from contracts.control import Alert, AlertDelivery, RolloutObservation
from contracts.serving.rollouts import RolloutSpec
from gateway.routing.rollouts.boards import Shared
from gateway.routing.rollouts.database_board import DatabaseBoard
from tests.gateway.control.conftest import ON_SQLITE

DEMO = "scripted-1"


@pytest.fixture
def serving(as_role) -> TestClient:
    """The owner's client of a control plane with two models and a route to the first."""
    owner: TestClient = as_role("owner")
    assert owner.post("/v1/pools", json={"id": "new"}).status_code == 201
    target = {"id": "one", "kind": "scripted"}
    assert owner.post("/v1/pools/new/targets", json=target).status_code == 201
    assert owner.post("/v1/models", json={"id": "new", "pool": "new"}).status_code == 201
    rules = {"choose": [{"model": DEMO, "weight": 3}], "fallbacks": [{"model": DEMO}]}
    assert owner.post("/v1/routes", json={"id": "assistant", "rules": rules}).status_code == 201
    return owner


def begin(client: TestClient, **more):
    body = {"id": "try", "route": "assistant", "incumbent": DEMO, "candidate": "new", **more}
    return client.post("/v1/rollouts", json=body)


def live(url: str) -> dict[str, RolloutSpec]:
    database = ControlDatabase(url)
    with database.session() as session:
        found = dict(read_snapshot(session).snapshot.rollouts)
    database.close()
    return found


def test_a_rollout_goes_from_step_to_step_and_puts_the_candidate_on_the_route(serving, control_database_url) -> None:
    made = begin(serving)
    assert made.status_code == 201, made.json()
    assert (made.json()["state"], made.json()["percent"]) == ("running", 1.0)
    spec = live(control_database_url)["assistant"]
    assert (spec.id, spec.percent, [step.percent for step in spec.rules.steps]) == ("try", 1.0, [1, 5, 25, 100])
    assert len(spec.salt) == 16
    assert serving.post("/v1/rollouts/try/advance", json={"reason": "looks well"}).json()["percent"] == 5.0
    assert serving.post("/v1/rollouts/try/pause", json={}).json()["state"] == "paused"
    assert live(control_database_url)["assistant"].percent == 5.0, "those who are in stay in"
    assert serving.post("/v1/rollouts/try/pause", json={}).status_code == 409
    assert serving.post("/v1/rollouts/try/resume", json={}).json()["percent"] == 5.0
    for percent in (25.0, 100.0):
        assert serving.post("/v1/rollouts/try/advance", json={}).json()["percent"] == percent
    assert serving.post("/v1/rollouts/try/advance", json={}).status_code == 400
    assert serving.delete("/v1/rollouts/try").status_code == 409
    assert serving.post("/v1/rollouts/try/promote", json={}).json()["state"] == "promoted"
    rules = serving.get("/v1/routes/assistant").json()["rules"]
    assert rules["choose"][0]["model"] == "new" and rules["choose"][0]["weight"] == 3
    assert rules["fallbacks"][0]["model"] == DEMO, "only the share is the candidate's now"
    assert live(control_database_url) == {}
    said = [entry["action"] for entry in serving.get("/v1/audit?action=rollout").json()["data"]]
    assert said[:1] == ["rollout.promote"] and said[-1] == "rollout.create" and "rollout.pause" in said
    assert serving.delete("/v1/rollouts/try").status_code == 200
    assert serving.get("/v1/rollouts").json()["data"] == []


def test_what_was_aborted_begins_again_at_the_first_step(serving, control_database_url) -> None:
    begin(serving)
    serving.post("/v1/rollouts/try/advance", json={})
    assert (
        serving.post("/v1/rollouts/try/abort", json={}).json() | {"percent": 0.0}
        == serving.get("/v1/rollouts/try").json()
    )
    assert live(control_database_url) == {}
    again = serving.post("/v1/rollouts/try/resume", json={}).json()
    assert (again["state"], again["percent"]) == ("running", 1.0)


@ON_SQLITE
@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"route": "gone"}, 400, "on route 'gone', which does not exist"),
        ({"candidate": "gone"}, 400, "tries 'gone', which is not served"),
        ({"incumbent": "new", "candidate": DEMO}, 400, "chooses no incumbent 'new'"),
        ({"rules": {"steps": [{"percent": 5}, {"percent": 5}]}}, 400, "each step must have more"),
        ({"rules": {"steps": []}}, 400, "needs steps, a shadow, or both"),
        ({"rules": {"shadow": {"percent": 1, "max_usd_per_day": 0}}}, 400, "max_usd_per_day"),
        ({"rules": {"colour": 1}}, 400, "colour"),
        ({"id": "No Slug"}, 400, "id"),
    ],
)
def test_a_rollout_that_cannot_stand_is_refused_and_nothing_kept(serving, more, status, words) -> None:
    refused = begin(serving, **more)
    assert (refused.status_code, words in str(refused.json())) == (status, True), refused.json()
    assert serving.get("/v1/rollouts").json()["data"] == []


@ON_SQLITE
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"route": "gone"}, "route"),
        ({"route": "new", "candidate": "new"}, "route"),
        ({"candidate": "gone"}, "candidate"),
        ({"incumbent": "new", "candidate": DEMO}, "incumbent"),
        ({"incumbent": "new", "candidate": "new"}, "candidate"),
    ],
)
def test_a_refused_rollout_names_the_field_at_fault(serving, more, param) -> None:
    assert begin(serving, **more).json()["error"]["param"] == param


def test_a_route_has_one_live_rollout_and_only_the_platform_sees_any(serving, as_role) -> None:
    assert begin(serving).status_code == 201
    assert begin(serving).status_code == 409
    assert "which is live" in begin(serving, id="other").json()["error"]["message"]
    for role, about in (("finance", {}), ("admin", {"tenant": "acme"})):
        assert as_role(role, **about).get("/v1/rollouts").status_code == 403


def test_gateways_agree_and_the_rollback_is_in_the_audit_and_in_the_alert_log(serving, control_database_url) -> None:
    channel = {"id": "ops", "kind": "slack", "address": "https://hooks.slack.com/services/T/B/x"}
    assert serving.post("/v1/alert-channels", json=channel).status_code == 201
    begin(serving)
    spec = live(control_database_url)["assistant"]
    first, second = (DatabaseBoard(control_database_url, name) for name in ("one", "two"))
    day = datetime.now(UTC).date().isoformat()
    assert first.exchange(spec, seen(failed=3), day, 70).observed == []
    shared = second.exchange(spec, seen(failed=40), day, 5)
    assert [one.candidate.errors for one in shared.observed] == [3]
    assert (shared.own_shadow_pico_usd, shared.others_shadow_pico_usd) == (0, [70])
    standing = serving.get("/v1/rollouts/try/standing").json()
    assert (standing["gateways"], standing["candidate"]["errors"], standing["shadow_usd"]) == (2, 43, 75e-12)
    assert "error rate of the candidate is" in standing["breaches"][0]
    second.roll_back(spec, "error rate is 0.4")
    first.roll_back(spec, "error rate is 0.4")  # came second
    first.go_on(spec)
    found = serving.get("/v1/rollouts/try").json()
    assert (found["state"], found["reason"]) == ("rolled_back", "error rate is 0.4")
    [entry] = serving.get("/v1/audit?action=rollout.roll_back").json()["data"]
    assert (entry["actor"], entry["detail"]["reason"]) == ("gateway two", "error rate is 0.4")
    [alert] = serving.get("/v1/alerts").json()["data"]
    assert alert["summary"] == "rollout try of new was rolled back: error rate is 0.4"
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        assert session.query(Alert).count() == 1
        [notice] = session.query(AlertDelivery).all()
        assert (notice.channel_id, notice.body["kind"]) == ("ops", "rollout")
    database.close()
    first.close()
    second.close()


def test_what_the_incumbent_was_outlives_gateways_and_what_copies_may_cost_does_not(
    serving, control_database_url
) -> None:
    begin(serving)
    spec, day = live(control_database_url)["assistant"], datetime.now(UTC).date().isoformat()
    told = RolloutTotals(incumbent_before=ArmTally(requests=60))
    first = DatabaseBoard(control_database_url, "one")
    assert first.exchange(spec, told, day, 70).incumbent_before is None
    assert first.exchange(spec, told, day, 20).incumbent_before is None
    assert serving.get("/v1/rollouts/try/standing").json()["shadow_usd"] == 20e-12, "70 were held for a while"
    first.close()
    again = DatabaseBoard(control_database_url, "one")
    shared = again.exchange(spec, RolloutTotals(), day, 0)
    assert shared.incumbent_before == ArmTally(requests=60) and shared.own_shadow_pico_usd == 20
    assert again.exchange(spec, told, day, 20) == Shared(own_shadow_pico_usd=20), "it is given once"
    again.close()
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        [row] = session.query(RolloutObservation).all()
        row.updated_at = datetime.now(UTC) - timedelta(minutes=1)
    database.close()
    other = DatabaseBoard(control_database_url, "two")
    [gone] = other.exchange(spec, RolloutTotals(), day, 0).observed
    assert (gone.incumbent_before.requests, gone.incumbent.requests) == (60, 0)
    other.close()
    standing = serving.get("/v1/rollouts/try/standing").json()
    assert (standing["gateways"], standing["shadow_usd"]) == (1, 20e-12)
    serving.post("/v1/rollouts/try/abort", json={})
    assert serving.get("/v1/rollouts/try/standing").json()["shadow_usd"] == 20e-12, "spent is spent"


def test_what_a_live_rollout_stands_on_is_not_taken_away(serving) -> None:
    begin(serving)
    for refused in (
        serving.delete("/v1/models/new"),
        serving.delete("/v1/routes/assistant"),
        serving.patch("/v1/routes/assistant", json={"is_active": False}),
        serving.patch("/v1/routes/assistant", json={"rules": {"choose": [{"model": "new"}]}}),
    ):
        assert refused.status_code == 409 and "end the rollout first" in refused.json()["error"]["message"]
    assert serving.patch("/v1/routes/assistant", json={"rules": {"choose": [{"model": DEMO}]}}).status_code == 200
    serving.post("/v1/rollouts/try/abort", json={})
    assert serving.delete("/v1/models/new").status_code == 200


def seen(failed: int) -> RolloutTotals:
    """A hundred requests of each arm, of which the given number of the candidate's failed."""
    observed = RolloutTotals(step_requests=100)
    for number in range(100):
        observed.candidate.add(ObservedRequest(failed=number < failed, duration_ms=5.0))
        observed.incumbent.add(ObservedRequest(failed=False, duration_ms=5.0))
    observed.incumbent_before = ArmTally()
    return observed


def test_what_a_gateway_said_long_ago_or_of_an_earlier_term_is_not_counted(serving, control_database_url) -> None:
    from backends.control.rollout_board import others_observed, publish_observation

    begin(serving)
    now = datetime.now(UTC)
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        for name, term, ago in (("old", 1, 60), ("past", 7, 0), ("good", 1, 1)):
            at = now - timedelta(seconds=ago)
            publish_observation(session, name, "try", term, seen(1), shadow_day="", shadow_pico_usd=0, at=at)
    with database.session() as session:
        assert len(others_observed(session, "me", "try", 1, now)) == 1
    database.close()
