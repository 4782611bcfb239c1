"""Limits, budgets, their state and pools' queues over HTTP: what an administrator sees, and how it says no."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from backends.control.budgets import GatewayState, PassedThreshold, publish_states, record_event
from backends.control.database import ControlDatabase
from contracts.recording.moments import unix_ns
from contracts.rules.limits import BudgetSpec, Scope
from contracts.rules.periods import budget_period
from gateway.control.budget_state import state_of

LIMITS, BUDGETS = "/v1/tenants/acme/limits", "/v1/tenants/acme/budgets"
PER_MINUTE = {"level": "tenant", "metric": "tokens", "window": "minute", "amount": 1000}
MONTHLY = {"level": "tenant", "period": "month", "amount_usd": "100"}
USD = 10**12

# What the edge says does not depend on the database behind it.
pytestmark = pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)


def database_of(client: TestClient) -> ControlDatabase:
    assert isinstance(client.app, FastAPI)
    database: ControlDatabase = client.app.state.database
    return database


def this_month(time_zone: str = "UTC") -> tuple[int, int]:
    spec = BudgetSpec("b", Scope("acme", "tenant"), "pico_usd", 1, "month", time_zone=time_zone)
    bounds = budget_period(spec, unix_ns(datetime.now(UTC)))
    assert bounds is not None and bounds[1] is not None
    return bounds[0], bounds[1]


def test_a_limit_is_made_listed_changed_and_removed(owner: TestClient) -> None:
    made = owner.post(LIMITS, json=PER_MINUTE)
    assert made.status_code == 201, made.text
    limit = made.json()
    assert limit["id"].startswith("lim_")
    assert (limit["window"], limit["model"], limit["amount_usd"]) == ("minute", None, None)
    money = {"level": "user", "subject": "*", "metric": "usd", "window": "day", "amount_usd": "0.000000000001"}
    assert owner.post(LIMITS, json=money).json()["amount_usd"] == "0.000000000001"
    atonce = owner.post(LIMITS, json={"level": "tenant", "metric": "concurrency", "amount": 4}).json()
    assert atonce["window"] is None
    first = owner.get(LIMITS, params={"limit": 2}).json()
    rest = owner.get(LIMITS, params={"limit": 2, "after": first["data"][-1]["id"]}).json()
    assert first["has_more"] and not rest["has_more"]
    assert len({row["id"] for row in first["data"] + rest["data"]}) == 3
    path = f"{LIMITS}/{limit['id']}"
    assert owner.patch(path, json={"amount": 2000}).json()["amount"] == 2000
    assert owner.get(path).json()["amount"] == 2000
    assert owner.delete(path).json() == {"id": limit["id"], "deleted": True}
    assert owner.get(path).status_code == 404


def test_a_budget_is_made_changed_and_removed(owner: TestClient) -> None:
    ends = (datetime.now(UTC) + timedelta(days=5)).isoformat()
    body = {**MONTHLY, "thresholds": [50, 100], "webhook_url": "https://hooks.example/x", "ends_at": ends}
    made = owner.post(BUDGETS, json=body)
    assert made.status_code == 201, made.text
    budget = made.json()
    assert (budget["amount_usd"], budget["gpu_milliseconds"], budget["is_hard"]) == ("100", None, True)
    path = f"{BUDGETS}/{budget['id']}"
    changed = owner.patch(path, json={"amount_usd": "0.10", "is_hard": False, "thresholds": [80]}).json()
    assert (changed["amount_usd"], changed["is_hard"], changed["thresholds"]) == ("0.10", False, [80])
    assert changed["ends_at"] is not None and changed["webhook_url"] == "https://hooks.example/x"
    cleared = owner.patch(path, json={"ends_at": None, "webhook_url": ""}).json()
    assert (cleared["ends_at"], cleared["webhook_url"]) == (None, "")
    assert [row["id"] for row in owner.get(BUDGETS).json()["data"]] == [budget["id"]]
    assert owner.delete(path).status_code == 200
    assert owner.get(path).status_code == 404


def test_a_budget_shows_what_is_spent_in_its_tenants_calendar(owner: TestClient) -> None:
    assert owner.patch("/v1/tenants/acme", json={"time_zone": "Asia/Tokyo"}).status_code == 200
    budget = owner.post(BUDGETS, json={**MONTHLY, "thresholds": [25]}).json()["id"]
    start, end = this_month("Asia/Tokyo")
    with database_of(owner).session() as session:
        now = datetime.now(UTC)
        publish_states(session, "a", [GatewayState(budget, "", start, 25 * USD + 1, 3)], now)
        publish_states(session, "b", [GatewayState(budget, "", start, USD // 4, 0, USD // 4)], now)
        record_event(session, PassedThreshold(budget, "", start, 25, 100 * USD, 25 * USD + 1), now)
    shown = owner.get(f"{BUDGETS}/{budget}").json()
    state = shown["state"]
    (whole,) = state["subjects"]
    assert (whole["spent"], whole["reserved"]) == ("25.500000000001", "0.000000000003")
    assert whole["overdraft"] == "0.25", "a part of what is spent"
    assert Decimal(whole["spent"]) + Decimal(whole["reserved"]) + Decimal(whole["remaining"]) == 100
    assert (whole["percent"], whole["reported_at"] is not None) == ("25.50", True)
    assert (state["unit"], state["amount"], state["time_zone"]) == ("usd", "100", "Asia/Tokyo")
    assert unix_ns(datetime.fromisoformat(state["period_start"])) == start
    assert unix_ns(datetime.fromisoformat(state["period_end"])) == end
    assert state["period_start"].endswith("T00:00:00+09:00")
    (event,) = shown["events"]
    assert (event["threshold_percent"], event["spent"], event["delivered_at"]) == (25, "25.000000000001", None)


def test_a_budget_for_each_user_shows_those_who_spent_most_first(owner: TestClient) -> None:
    body = {"level": "user", "subject": "*", "period": "month", "gpu_milliseconds": 10}
    budget = owner.post(BUDGETS, json=body).json()["id"]
    assert owner.get(f"{BUDGETS}/{budget}").json()["state"]["subjects"] == []
    start, _ = this_month()
    with database_of(owner).session() as session:
        states = [GatewayState(budget, f"u{number:03}", start, number * 1_000) for number in range(101)]
        publish_states(session, "a", [*states, GatewayState(budget, "eve", start, 12_000_000)], datetime.now(UTC))
    state = owner.get(f"{BUDGETS}/{budget}").json()["state"]
    assert (state["unit"], state["has_more"], len(state["subjects"])) == ("gpu_milliseconds", True, 100)
    first, second = state["subjects"][:2]
    assert (first["subject"], first["spent"], first["percent"], first["remaining"]) == ("eve", "12", "120.00", "0")
    assert (second["subject"], second["spent"]) == ("u100", "0.1")


def test_the_forecast_carries_on_the_pace_since_the_budget_was_made(owner: TestClient) -> None:
    start, end = this_month()
    day = 86_400 * 10**9
    spec = BudgetSpec("b", Scope("acme", "tenant"), "pico_usd", 100 * USD, "month")
    with database_of(owner).session() as session:
        made = owner.post(BUDGETS, json=MONTHLY).json()["id"]
        publish_states(session, "a", [GatewayState(made, "", start, 20 * USD)], datetime.now(UTC))
        session.flush()
        budget = BudgetSpec(made, spec.scope, spec.metric, spec.amount, spec.period)
        since_start = state_of(session, budget, 0, start + 10 * day)
        since_made = state_of(session, budget, start + 6 * day, start + 10 * day)
        too_early = state_of(session, budget, start + 9 * day, start + 10 * day)
        assert state_of(session, BudgetSpec("b", spec.scope, "gpu_ns", 1, "month", ends_at_ns=start), 0, start) is None
        session.rollback()
    assert since_start is not None and since_made is not None
    slow, fast = since_start.subjects[0], since_made.subjects[0]
    days = Decimal(end - start) / day
    assert slow.projected is not None and Decimal(slow.projected) == 2 * days
    assert slow.exhausted_at is None  # 2 USD a day: the month is over before
    assert fast.exhausted_at is not None and unix_ns(fast.exhausted_at) == start + 26 * day
    assert too_early is not None  # a day is less than a tenth of the month, and no pace
    assert (too_early.subjects[0].projected, too_early.subjects[0].exhausted_at) == (None, None)
    assert too_early.subjects[0].counted_since is not None


def test_a_budget_lowered_below_what_is_spent_is_told_both_amounts(owner: TestClient) -> None:
    budget = owner.post(BUDGETS, json=MONTHLY).json()["id"]
    start, _ = this_month()
    with database_of(owner).session() as session:
        publish_states(session, "a", [GatewayState(budget, "", start, 30 * USD)], datetime.now(UTC))
    refused = owner.patch(f"{BUDGETS}/{budget}", json={"amount_usd": "29.99"})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (409, "conflict", "amount_usd")
    assert "29.99 USD" in error["message"] and "30 USD are spent" in error["message"]
    assert owner.patch(f"{BUDGETS}/{budget}", json={"amount_usd": "30"}).status_code == 200


def test_a_pools_queue_is_set_shown_and_taken_away(owner: TestClient) -> None:
    assert owner.get("/v1/pools/demo").json()["queue"] is None
    queue = {"max_in_flight": 8, "tenant_max_in_flight": 0.5, "deadline_seconds": {"batch": 60}}
    assert owner.patch("/v1/pools/demo", json={"queue": queue}).json()["queue"] == queue
    assert owner.get("/v1/pools/demo").json()["queue"] == queue
    assert owner.patch("/v1/pools/demo", json={"queue": None}).json()["queue"] is None


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        (LIMITS, {**PER_MINUTE, "amount": -1}, 400, "amount", ["-1", "at least 0"]),
        (LIMITS, {**PER_MINUTE, "amount": 10**18}, 400, "amount", [str(10**18 - 1)]),
        (LIMITS, {**PER_MINUTE, "amount": True}, 400, "amount", ["True", "whole number"]),
        (LIMITS, {**PER_MINUTE, "amount": "10"}, 400, "amount", ["'10'", "whole number"]),
        (LIMITS, {**PER_MINUTE, "amount": None}, 400, "amount", ["whole number in amount"]),
        (LIMITS, {**PER_MINUTE, "level": "planet"}, 400, "level", ["'planet'", "tenant"]),
        (LIMITS, {**PER_MINUTE, "metric": "joules"}, 400, "metric", ["'joules'", "gpu_ms"]),
        (LIMITS, {**PER_MINUTE, "window": "week"}, 400, "window", ["'week'", "minute"]),
        (LIMITS, {**PER_MINUTE, "window": None}, 400, "window", ["needs a window"]),
        (LIMITS, {**PER_MINUTE, "metric": "concurrency"}, 400, "window", ["takes no window"]),
        (LIMITS, {**PER_MINUTE, "metric": "usd"}, 400, "amount_usd", ["decimal text"]),
        (LIMITS, {**PER_MINUTE, "currency": "EUR"}, 400, "currency", ["'EUR'", "amounts are in USD"]),
        (LIMITS, {**PER_MINUTE, "subject": "x\x00"}, 400, "subject", ["control characters"]),
        (LIMITS, {**PER_MINUTE, "level": "project", "subject": "unknown"}, 400, "subject", ["'unknown'"]),
        (LIMITS, {**PER_MINUTE, "level": "team", "subject": "none"}, 400, "subject", ["'none'", "no such team"]),
        (LIMITS, {**PER_MINUTE, "model": "none"}, 400, "model", ["'none'", "not a model, route or MCP tool"]),
        (LIMITS, {**PER_MINUTE, "id": "mine"}, 400, "id", ["not a field"]),
        ("/v1/tenants/nobody/limits", PER_MINUTE, 404, None, ["tenant 'nobody' does not exist"]),
        (BUDGETS, {**MONTHLY, "amount_usd": "0"}, 400, "amount_usd", ["above 0"]),
        (BUDGETS, {**MONTHLY, "amount_usd": "-5"}, 400, "amount_usd", ["-5", "above 0"]),
        (BUDGETS, {**MONTHLY, "amount_usd": "1000000"}, 400, "amount_usd", ["999999.999999999999"]),
        (BUDGETS, {**MONTHLY, "amount_usd": "1e-13"}, 400, "amount_usd", ["12"]),
        (BUDGETS, {**MONTHLY, "amount_usd": "NaN"}, 400, "amount_usd", ["finite"]),
        (BUDGETS, {**MONTHLY, "amount_usd": None}, 400, "gpu_milliseconds", ["either"]),
        (BUDGETS, {**MONTHLY, "gpu_milliseconds": 5}, 400, "amount_usd", ["either"]),
        (BUDGETS, {**MONTHLY, "gpu_milliseconds": 10**12}, 400, "gpu_milliseconds", ["999999999999"]),
        (BUDGETS, {**MONTHLY, "period": "year"}, 400, "period", ["'year'", "month"]),
        (BUDGETS, {**MONTHLY, "level": "conversation"}, 400, "level", ["'conversation'", "tenant"]),
        (BUDGETS, {**MONTHLY, "ends_at": "2001-01-01T00:00:00Z"}, 400, "ends_at", ["past"]),
        (BUDGETS, {**MONTHLY, "ends_at": "2101-01-01T00:00:00"}, 400, "ends_at", ["time with its zone"]),
        (BUDGETS, {**MONTHLY, "thresholds": [100, 50]}, 400, "thresholds", ["must rise"]),
        (BUDGETS, {**MONTHLY, "thresholds": [0]}, 400, "thresholds.0", ["at least 1"]),
        (BUDGETS, {**MONTHLY, "webhook_url": "ftp://h/x"}, 400, "webhook_url", ["http://"]),
        (BUDGETS, {**MONTHLY, "webhook_url": "http://h:99999/"}, 400, "webhook_url", ["http://"]),
        (BUDGETS, {**MONTHLY, "webhook_url": "http://me:pw@h/"}, 400, "webhook_url", ["no user or password"]),
        (BUDGETS, {**MONTHLY, "currency": "eur"}, 400, "currency", ["amounts are in USD"]),
    ],
)
def test_bad_limits_and_budgets_are_refused_by_name(
    owner: TestClient, path: str, body: dict[str, Any], status: int, param: str | None, words: list[str]
) -> None:
    before = owner.get("/ready").json()["revision"]
    reply = owner.post(path, json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (status, "invalid_request_error"), error
    assert error["param"] == param, error
    for word in words:
        assert word in error["message"], error["message"]
    assert owner.get("/ready").json()["revision"] == before


@pytest.mark.parametrize(
    ("queue", "param"),
    [
        ({"max_in_flight": 0}, "queue.max_in_flight"),
        ({"tenant_max_tokens": 1.5}, "queue.tenant_max_tokens"),
        ({"deadline_seconds": {"bulk": 1}}, "queue.deadline_seconds.bulk.[key]"),
        ({"lanes": 3}, "queue.lanes"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_name(owner: TestClient, queue: dict[str, Any], param: str) -> None:
    reply = owner.patch("/v1/pools/demo", json={"queue": queue})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_contradicting_and_doubled_limits_are_conflicts(owner: TestClient) -> None:
    first = owner.post(LIMITS, json=PER_MINUTE).json()["id"]
    for body, word in ((PER_MINUTE, "counts the same"), ({**PER_MINUTE, "window": "day", "amount": 9}, "less than")):
        reply = owner.post(LIMITS, json=body)
        assert reply.status_code == 409 and first in reply.json()["error"]["message"]
        assert word in reply.json()["error"]["message"]
