"""Budgets in the control database, what gateways write down of them, and thresholds that are told once."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from backends.control import budgets, organisation
from backends.control.book_periods import ISSUER, ProfileChange, set_profile
from backends.control.budget_events import claim_event, due_events, events_of, fail_event, finish_event, wait_after
from backends.control.budgets import BudgetChange, GatewayState, NewBudget, PassedThreshold, Spent
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.control import AuditEntry, Budget, BudgetState
from contracts.errors import Conflict, InvalidRequest
from contracts.recording.moments import unix_ns
from contracts.rules.periods import budget_period

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
MONTHLY = NewBudget("acme", "tenant", "month", amount_usd=Decimal(100), thresholds=(50, 100))
USD = 10**12


@pytest.fixture
def database(control_database: ControlDatabase) -> Iterator[ControlDatabase]:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme", time_zone="Asia/Tokyo")
    yield control_database


def made(database: ControlDatabase, new: NewBudget = MONTHLY) -> Budget:
    with database.session() as session:
        return budgets.create_budget(session, AUTHOR, new)


def period_start(database: ControlDatabase, row: Budget) -> int:
    with database.session() as session:
        bounds = budget_period(budgets.spec_of(session, row), unix_ns(NOW))
    assert bounds is not None
    return bounds[0]


def test_budgets_reach_the_data_plane_in_base_units_and_their_tenants_calendar(database: ControlDatabase) -> None:
    ends = NOW + timedelta(days=90)
    money = made(database, replace(MONTHLY, amount_usd=Decimal("0.000000000001"), ends_at=ends, webhook_url="http://h"))
    made(database, NewBudget("acme", "user", "day", gpu_milliseconds=5, subject="*", is_hard=False))
    with database.session() as session:
        snapshot = load_snapshot(session)
    found = {budget.scope.level: budget for budget in snapshot.budgets}
    tenant, user = found["tenant"], found["user"]
    assert money.id.startswith("bud_") and tenant.id == money.id
    assert (tenant.metric, tenant.amount, tenant.time_zone, tenant.thresholds) == (
        "pico_usd",
        1,
        "Asia/Tokyo",
        (50, 100),
    )
    assert (tenant.ends_at_ns, tenant.webhook_url, tenant.is_hard) == (unix_ns(ends), "http://h", True)
    assert (user.metric, user.amount, user.is_hard) == ("gpu_ns", 5_000_000, False)


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"amount_usd": None}, "gpu_milliseconds", "either amount_usd or gpu_milliseconds"),
        ({"gpu_milliseconds": 5}, "amount_usd", "either amount_usd or gpu_milliseconds"),
        ({"amount_usd": Decimal(0)}, "amount_usd", "1 to"),
        ({"amount_usd": Decimal(-1)}, "amount_usd", "1 to"),
        ({"amount_usd": Decimal(1_000_000)}, "amount_usd", str(10**18 - 1)),
        ({"amount_usd": Decimal("1e-13")}, "amount_usd", "finer than a pico-USD"),
        ({"thresholds": (100, 50)}, "thresholds", "must rise"),
        ({"thresholds": (0,)}, "thresholds", "1 to 1000 percent"),
        ({"level": "conversation"}, "level", "limit with level `conversation`"),
        ({"ends_at": NOW}, "ends_at", "which is past"),
        ({"starts_at": NOW + timedelta(days=2), "ends_at": NOW + timedelta(days=1)}, "ends_at", "before it begins"),
    ],
)
def test_what_no_budget_can_be_is_refused_by_name(
    database: ControlDatabase, changes: dict[str, object], param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        made(database, replace(MONTHLY, **changes))  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.param == param
    with database.session() as session:
        assert budgets.list_budgets(session, "acme") == []


@pytest.mark.parametrize(
    "change",
    [
        "level = 'conversation'",
        "period = 'year'",
        "amount_usd = NULL",
        "gpu_milliseconds = 5",
        "amount_usd = '0'",
        "amount_usd = '-1'",
        "amount_usd = NULL, gpu_milliseconds = 0",
        "starts_at = '2026-02-01 00:00:00.000000', ends_at = '2026-01-01 00:00:00.000000'",
    ],
)
def test_the_database_itself_keeps_no_such_budget(database: ControlDatabase, change: str) -> None:
    made(database)
    with pytest.raises(IntegrityError), database.engine.begin() as connection:
        connection.execute(text(f"UPDATE budgets SET {change}"))


def test_what_is_spent_is_the_sum_over_gateways_and_moves_no_revision(database: ControlDatabase) -> None:
    row = made(database)
    start = period_start(database, row)
    with database.session() as session:
        before = read_revision(session)
        budgets.publish_states(session, "a", [GatewayState(row.id, "", start, 10 * USD, 3)], NOW)
        budgets.publish_states(session, "b", [GatewayState(row.id, "", start, 5, 2, 40)], NOW - timedelta(seconds=9))
    with database.session() as session:
        later = [GatewayState(row.id, "", start, 10**19, 0, 2), GatewayState("bud_gone", "", start, 1)]
        budgets.publish_states(session, "a", later, NOW)
        budgets.publish_states(session, "a", [GatewayState(row.id, "", start + 10**18, 7)], NOW)
    with database.session() as session:
        assert budgets.spent_of(session, row.id, start) == {"": Spent(10**19 + 5, 2, NOW - timedelta(seconds=9), 42)}
        assert budgets.states_of(session, "b", [row.id]) == [GatewayState(row.id, "", start, 5, 2, 40)]
        assert budgets.states_of(session, "b", ["bud_other"]) == []
        assert read_revision(session) == before
    with database.session() as session:
        budgets.delete_budget(session, AUTHOR, "acme", row.id)
        assert session.scalars(select(BudgetState)).all() == []


def test_old_periods_are_forgotten_and_totals_are_not(database: ControlDatabase) -> None:
    month, total = made(database), made(database, replace(MONTHLY, period="total"))
    start = period_start(database, month)
    with database.session() as session:
        states = [GatewayState(month.id, "", start, 1), GatewayState(month.id, "", start - 10**15, 1)]
        budgets.publish_states(session, "a", [*states, GatewayState(total.id, "", 0, 1)], NOW)
    with database.session() as session:
        budgets.forget_states(session, NOW - timedelta(days=22))
    with database.session() as session:
        left = {(row.budget_id, unix_ns(row.period_start)) for row in session.scalars(select(BudgetState))}
    assert left == {(month.id, start), (total.id, 0)}


@pytest.mark.parametrize(
    ("amount", "is_refused"), [("29.999999999999", True), ("30", False), ("30.000000000001", False)]
)
def test_a_budget_cannot_be_lowered_below_what_is_spent(
    database: ControlDatabase, amount: str, is_refused: bool
) -> None:
    row = made(database)
    start = period_start(database, row)
    with database.session() as session:
        for gateway, settled in (("a", 10 * USD), ("b", 20 * USD)):
            budgets.publish_states(session, gateway, [GatewayState(row.id, "", start, settled)], NOW)
        budgets.publish_states(session, "a", [GatewayState(row.id, "", start - 10**15, 90 * USD)], NOW)  # another month
    change = BudgetChange(amount_usd=Decimal(amount))
    if is_refused:
        with pytest.raises(Conflict, match="29.999999999999 USD, but 30 USD are spent") as refused:
            with database.session() as session:
                budgets.update_budget(session, AUTHOR, "acme", row.id, change)
        assert refused.value.param == "amount_usd" and "or delete" in refused.value.message
        amount = "100"
    else:
        with database.session() as session:
            budgets.update_budget(session, AUTHOR, "acme", row.id, change)
    with database.session() as session:
        assert budgets.get_budget(session, "acme", row.id).amount_usd == Decimal(amount)


def test_a_change_is_audited_with_both_amounts_and_never_the_webhook(database: ControlDatabase) -> None:
    row = made(database)
    secret = BudgetChange(amount_usd=Decimal("150.5"), webhook_url="https://hooks.example/secret-path", thresholds=[80])
    with database.session() as session:
        budgets.update_budget(session, AUTHOR, "acme", row.id, secret)
    with database.session() as session:
        entry = session.scalars(select(AuditEntry).where(AuditEntry.action == "budget.update")).one()
    before, after = entry.detail["before"], entry.detail["after"]
    assert isinstance(before, dict) and isinstance(after, dict)
    assert (before["amount_usd"], after["amount_usd"]) == ("100", "150.5")
    assert (before["has_webhook"], after["has_webhook"], after["thresholds"]) == (False, True, [80])
    assert "secret-path" not in str(entry.detail)


def test_an_end_is_moved_and_taken_away(database: ControlDatabase) -> None:
    row = made(database)
    end = NOW + timedelta(days=1)
    with database.session() as session:
        assert budgets.update_budget(session, AUTHOR, "acme", row.id, BudgetChange(ends_at=end)).ends_at == end
    with pytest.raises(InvalidRequest, match="which is past"), database.session() as session:
        budgets.update_budget(session, AUTHOR, "acme", row.id, BudgetChange(ends_at=NOW - timedelta(seconds=1)))
    with database.session() as session:
        assert budgets.update_budget(session, AUTHOR, "acme", row.id, BudgetChange(is_endless=True)).ends_at is None
    with pytest.raises(InvalidRequest, match="is in amount_usd"), database.session() as session:
        budgets.update_budget(session, AUTHOR, "acme", row.id, BudgetChange(gpu_milliseconds=5))


def test_a_threshold_is_told_once_per_period_whoever_sees_it(database: ControlDatabase) -> None:
    row = made(database, replace(MONTHLY, webhook_url="http://h"))
    passed = PassedThreshold(row.id, "", period_start(database, row), 50, 100 * USD, 50 * USD)
    seen = []
    for one in (passed, passed, replace(passed, threshold_percent=100), replace(passed, period_start_ns=0)):
        with database.session() as session:
            seen.append(budgets.record_event(session, one, NOW))
    with database.session() as session:
        assert not budgets.record_event(session, replace(passed, budget_id="bud_gone"), NOW)
        assert len(events_of(session, row.id)) == 3
    assert seen == [True, False, True, True]


def test_one_event_is_claimed_by_one_control_plane_and_waits_longer_each_time(database: ControlDatabase) -> None:
    row = made(database, replace(MONTHLY, webhook_url="http://h"))
    with database.session() as session:
        budgets.record_event(session, PassedThreshold(row.id, "", 0, 50, 2, 1), NOW)
        ((event, _),) = due_events(session, NOW)
    with database.session() as session:
        assert claim_event(session, event.id, 0, NOW)
    with database.session() as session:
        assert not claim_event(session, event.id, 0, NOW)
        assert due_events(session, NOW + timedelta(seconds=9)) == []
        assert len(due_events(session, NOW + timedelta(seconds=10))) == 1
    assert [wait_after(number).total_seconds() for number in (1, 2, 3, 9, 10, 1000)] == [10, 20, 40, 2560, 3600, 3600]
    with database.session() as session:
        assert fail_event(session, event.id, "answered 500")
        finish_event(session, event.id, NOW)
    with database.session() as session:
        (kept,) = events_of(session, row.id)
        assert (kept.delivered_at, kept.attempts, kept.next_attempt_at, kept.last_error) == (NOW, 1, None, "")


FIRST, SECOND = Author("alice", NOW), Author("bob", NOW)


@pytest.mark.parametrize(
    "loosened",
    [
        BudgetChange(amount_usd=Decimal("100.000000000001")),
        BudgetChange(is_hard=False),
        BudgetChange(ends_at=NOW + timedelta(days=1)),
    ],
)
def test_a_hard_budget_is_loosened_by_two_people_if_two_are_needed(
    database: ControlDatabase, loosened: BudgetChange
) -> None:
    row = made(database)
    with database.session() as session:
        set_profile(session, AUTHOR, ISSUER, ProfileChange(is_two_person=True))
        budgets.update_budget(session, FIRST, "acme", row.id, loosened)
    with database.session() as session:
        asked = budgets.get_budget(session, "acme", row.id)
        assert (asked.amount_usd, asked.is_hard, asked.ends_at) == (Decimal(100), True, None)
        assert asked.proposed_by == "alice" and len(asked.proposal) == 1
        entry = session.scalars(select(AuditEntry).order_by(AuditEntry.id.desc())).first()
        assert entry is not None and entry.detail["is_proposal"] is True
    with database.session() as session, pytest.raises(Conflict, match="alice asked for it; another person"):
        budgets.update_budget(session, FIRST, "acme", row.id, loosened)
    with database.session() as session:
        done = budgets.update_budget(session, SECOND, "acme", row.id, loosened)
        changed = (done.amount_usd, done.is_hard, done.ends_at) != (Decimal(100), True, None)
        assert changed and (done.proposal, done.proposed_by) == ({}, "")


def test_a_second_person_confirms_nothing_else_than_what_was_asked_for(database: ControlDatabase) -> None:
    row = made(database)
    with database.session() as session:
        set_profile(session, AUTHOR, ISSUER, ProfileChange(is_two_person=True))
        budgets.update_budget(session, FIRST, "acme", row.id, BudgetChange(amount_usd=Decimal(150)))
        other = budgets.update_budget(session, SECOND, "acme", row.id, BudgetChange(amount_usd=Decimal(200)))
        assert other.amount_usd == 100 and other.proposal == {"amount_usd": "200"} and other.proposed_by == "bob"
    with database.session() as session:
        budgets.update_budget(session, FIRST, "acme", row.id, BudgetChange(amount_usd=Decimal("200.0")))
        assert budgets.get_budget(session, "acme", row.id).amount_usd == 200


def test_a_budget_is_tightened_and_a_soft_one_changed_by_one_person(database: ControlDatabase) -> None:
    hard, soft = made(database), made(database, replace(MONTHLY, is_hard=False))
    with database.session() as session:
        set_profile(session, AUTHOR, ISSUER, ProfileChange(is_two_person=True))
        for amount in (100, 99):
            change = BudgetChange(amount_usd=Decimal(amount))
            assert budgets.update_budget(session, FIRST, "acme", hard.id, change).amount_usd == amount
        assert budgets.update_budget(session, FIRST, "acme", soft.id, BudgetChange(amount_usd=Decimal(900))).amount_usd
        budgets.delete_budget(session, FIRST, "acme", soft.id)
    with database.session() as session, pytest.raises(Conflict, match="make it soft first"):
        budgets.delete_budget(session, FIRST, "acme", hard.id)
    with database.session() as session:
        one_person = ProfileChange(is_two_person=False)
        assert set_profile(session, FIRST, ISSUER, one_person).is_two_person
        with pytest.raises(Conflict, match="alice asked for it; another person must end two-person approval"):
            set_profile(session, FIRST, ISSUER, one_person)
        assert not set_profile(session, SECOND, ISSUER, one_person).is_two_person
        budgets.delete_budget(session, FIRST, "acme", hard.id)
