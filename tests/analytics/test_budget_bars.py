"""Budgets as bars: what gateways charged in this period, what it comes to, and from where on it is urgent."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from analytics.budget_bars import BudgetBar, budget_bars
from analytics.query_time import QueryTime
from backends.control.budget_states import GatewayState, publish_states
from backends.control.budgets import NewBudget, create_budget
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_team, create_tenant
from contracts.recording.moments import unix_ns
from contracts.rules.limits import Period
from contracts.rules.periods import period_bounds

NOON = datetime(2026, 11, 16, 0, 0, tzinfo=UTC)  # half of November has passed
USD = 10**12


@pytest.fixture
def world(control_database: ControlDatabase) -> ControlDatabase:
    author = Author("test", NOON - timedelta(days=40))
    with control_database.session() as session:
        for tenant in ("acme", "globex"):
            create_tenant(session, author, tenant, tenant)
        create_team(session, author, "acme", "red", "Red")
    return control_database


def budget(world: ControlDatabase, level: str, subject: str = "", usd: int = 100, **fields: object) -> str:
    values: dict[str, object] = {"period": "month", "amount_usd": Decimal(usd), "thresholds": [50], **fields}
    with world.session() as session:
        new = NewBudget(str(values.pop("tenant_id", "acme")), level, subject=subject, **values)  # type: ignore[arg-type]
        return create_budget(session, Author("test", NOON - timedelta(days=40)), new).id


def spend(
    world: ControlDatabase,
    budget_id: str,
    usd: Decimal | int,
    subject: str = "",
    months_ago: int = 0,
    period: Period = "month",
) -> None:
    start_ns, _ = period_bounds(period, "UTC", unix_ns(NOON - timedelta(days=30 * months_ago)))
    for gateway in ("one", "two"):  # what is spent is the sum over gateways
        with world.session() as session:
            state = GatewayState(budget_id, subject, start_ns, int(usd * USD) // 2)
            publish_states(session, gateway, [state], NOON)


def bars(world: ControlDatabase, tenant: str | None = None, team: str | None = None) -> list[BudgetBar]:
    with world.session() as session:
        return list(budget_bars(session, QueryTime(NOON), tenant, team))


@pytest.mark.parametrize(
    ("spent", "state"),
    [
        (Decimal("79.99"), "fine"),
        (Decimal(80), "near"),
        (Decimal("99.99"), "near"),
        (Decimal(100), "used_up"),
        (Decimal(101), "used_up"),
    ],
)
def test_a_bar_turns_at_four_fifths_and_at_its_end(world: ControlDatabase, spent: Decimal, state: str) -> None:
    spend(world, budget(world, "tenant", period="total"), spent, period="total")
    (bar,) = bars(world)
    assert bar.used == spent * USD
    assert bar.projected is None, "it has no end"
    assert bar.state == state


@pytest.mark.parametrize(("spent", "state"), [(Decimal(50), "fine"), (Decimal("50.01"), "near")])
def test_a_bar_turns_where_the_pace_exceeds_the_amount(world: ControlDatabase, spent: Decimal, state: str) -> None:
    spend(world, budget(world, "tenant"), spent)
    (bar,) = bars(world)
    assert bar.projected == int(spent * USD) * 2, "half of the month has passed"
    assert bar.state == state


def test_a_pace_that_exceeds_the_amount_is_told_before_the_threshold(world: ControlDatabase) -> None:
    spend(world, budget(world, "tenant", thresholds=[90]), 51)
    (bar,) = bars(world)
    assert bar.state == "near" and bar.projected == 102 * USD
    assert bar.exhausted_at is not None and bar.exhausted_at < datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(("hours", "is_told"), [(71, False), (72, True), (73, True)])
def test_a_pace_is_told_once_a_tenth_of_the_period_was_counted(
    world: ControlDatabase, hours: int, is_told: bool
) -> None:
    spend(world, budget(world, "tenant", usd=1_000), 499)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    with world.session() as session:
        (bar,) = budget_bars(session, QueryTime(start + timedelta(hours=hours)))
    assert (bar.projected is not None, bar.exhausted_at is not None) == (is_told, is_told)
    assert bar.state == ("near" if is_told else "fine")


def test_the_fullest_comes_first_and_an_earlier_period_does_not_count(world: ControlDatabase) -> None:
    fuller, emptier = budget(world, "team", "red"), budget(world, "tenant")
    spend(world, fuller, 40, "red")
    spend(world, emptier, 10)
    spend(world, emptier, 90, months_ago=1)
    found = bars(world)
    assert [(bar.spec.id, bar.used) for bar in found] == [(fuller, 40 * USD), (emptier, 10 * USD)]
    assert all(bar.reported_at == NOON for bar in found)


def test_what_nobody_used_has_an_empty_bar_and_what_has_ended_counts_nothing(world: ControlDatabase) -> None:
    unused = budget(world, "tenant")
    ended = budget(world, "team", "red", ends_at=NOON - timedelta(days=1))
    found = bars(world)
    assert [(bar.spec.id, bar.used, bar.state) for bar in found] == [(unused, 0, "fine"), (ended, 0, "not_counting")]
    assert found[0].reported_at is None


def test_of_a_budget_that_each_has_those_that_used_most_are_shown(world: ControlDatabase) -> None:
    each = budget(world, "user", "*")
    for number in range(7):
        spend(world, each, number + 1, f"user-{number}")
    assert [bar.subject for bar in bars(world)] == ["user-6", "user-5", "user-4", "user-3", "user-2"]


def test_a_tenant_and_a_team_see_their_own(world: ControlDatabase) -> None:
    of_tenant, of_team = budget(world, "tenant"), budget(world, "team", "red")
    budget(world, "tenant", tenant_id="globex")
    assert {bar.spec.id for bar in bars(world, "acme")} == {of_tenant, of_team}
    assert [bar.spec.id for bar in bars(world, "acme", "red")] == [of_team]
    assert len(bars(world)) == 3
