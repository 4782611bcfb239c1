"""What pools do about failures, and playbooks, over HTTP: checked, kept, and followed by the gateways' snapshots."""

import pytest

from backends.control.snapshot import load_snapshot
from contracts.serving.failures import DEFAULT_FAILURES, BreakerPolicy, FailurePolicy, HedgePolicy, Playbook
from tests.gateway.control.conftest import ON_SQLITE

POOL = {"id": "chat"}
TARGET = {"id": "one", "kind": "scripted", "provider": "far"}


@pytest.fixture
def pool(owner):
    assert owner.post("/v1/pools", json=POOL).status_code == 201
    assert owner.post("/v1/pools/chat/targets", json=TARGET).status_code == 201
    return owner


def served(control_database):
    with control_database.session() as session:
        return load_snapshot(session)


def test_a_pools_failures_are_set_shown_and_followed(pool, control_database):
    stated = {"retries": 2, "breaker": {"failures_in_a_row": 9}, "hedge": {"share": 0.1}}
    told = pool.patch("/v1/pools/chat", json={"failures": stated})
    assert told.status_code == 200 and told.json()["failures"] == stated and told.json()["queue"] is None
    assert served(control_database).pools["chat"].failures == FailurePolicy(
        retries=2, breaker=BreakerPolicy(failures_in_a_row=9), hedge=HedgePolicy(share=0.1)
    )
    assert pool.patch("/v1/pools/chat", json={"failures": None}).json()["failures"] is None
    assert served(control_database).pools["chat"].failures is DEFAULT_FAILURES


def test_a_queue_is_set_without_touching_the_failures(pool):
    pool.patch("/v1/pools/chat", json={"failures": {"breaker": None}})
    told = pool.patch("/v1/pools/chat", json={"queue": {"max_waiting": 3}}).json()
    assert told["queue"] == {"max_waiting": 3} and told["failures"] == {"breaker": None}


@ON_SQLITE
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"failures": {"retries": 11}},
        {"failures": {"hedge": {"quantile": 1}}},
        {"failures": {"breaker": {"first_pause_seconds": 9, "longest_pause_seconds": 1}}},
        {"failures": {"when_all_away": "hope"}},
    ],
)
def test_failures_that_cannot_stand_are_refused(pool, wrong):
    assert pool.patch("/v1/pools/chat", json=wrong).status_code in (400, 422)
    assert pool.get("/v1/pools/chat").json()["failures"] is None


def test_a_playbook_is_made_changed_followed_and_taken_away(pool, control_database):
    body = {"provider": "far", "then": ["near"], "outage": {"good_probes": 5}}
    assert pool.post("/v1/playbooks", json=body).status_code == 201
    assert pool.post("/v1/playbooks", json=body).status_code == 409
    expected = Playbook("far", ("near",), BreakerPolicy(failures_in_a_row=10, good_probes=5))
    assert served(control_database).playbooks == {"far": expected}
    changed = pool.patch("/v1/playbooks/far", json={"rules": {"then": ["own", "near"]}})
    assert changed.json()["rules"] == {"then": ["own", "near"]}
    assert served(control_database).playbooks["far"].then == ("own", "near")
    assert [one["provider"] for one in pool.get("/v1/playbooks").json()["data"]] == ["far"]
    assert pool.delete("/v1/playbooks/far").status_code == 200
    assert served(control_database).playbooks == {} and pool.get("/v1/playbooks/far").status_code == 404


@ON_SQLITE
@pytest.mark.parametrize("then", [["far"], ["near", "near"]])
def test_a_playbook_that_cannot_stand_is_refused_by_name(pool, then):
    told = pool.post("/v1/playbooks", json={"provider": "far", "then": then})
    assert told.status_code == 400 and "playbook 'far'" in told.json()["error"]["message"]
