"""Rules over a real control database: raised once, told once, resolved once, by one evaluator of several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from secrets import token_urlsafe
from typing import Any

import pytest
from sqlalchemy import select

from analytics.alerts.evaluator import LEASE_LASTS, Evaluation, Evaluator
from analytics.alerts.sources import AlertInputs, Findings, Source, by_rule
from analytics.alerts.wiring import SOURCES
from backends.control.alert_log import acknowledge_alert, list_alerts, settle_alerts
from backends.control.alert_rules import NewRule, NewSilence, create_channel, create_rule, create_silence, delete_row
from backends.control.budget_events import PassedThreshold, record_event
from backends.control.budget_spending import BudgetSpending
from backends.control.budget_states import GatewayState, publish_states
from backends.control.budgets import BudgetChange, NewBudget, create_budget, update_budget
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.leases import require_lease, take_lease
from backends.control.organisation import create_tenant
from backends.control.sealer import Sealer
from backends.control.slos import Hold, list_holds, write_holds
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from contracts.control import AlertChannel, AlertDelivery, AlertRule, Budget
from contracts.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from contracts.recording.moments import unix_ns
from contracts.rules.alerts import Finding, Rule, RuleKind
from contracts.rules.objectives import Severity
from contracts.rules.periods import period_bounds

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
PICO = 10**12


@dataclass
class World:
    """A control database with a tenant, a channel and one rule whose findings the test decides."""

    database: ControlDatabase
    findings: list[Finding] = field(default_factory=list)
    fault: StoreUnavailable | None = None
    now: datetime = NOON

    def evaluator(self, holder: str = "one", sources: Mapping[RuleKind, Source] | None = None) -> Evaluator:
        away = StoreClient(StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", ""))
        return Evaluator(self.database, away, holder, sources=sources or {"unpriced_usage": self._source})

    def look(self, evaluator: Evaluator, after: timedelta = timedelta(seconds=15)) -> Evaluation:
        self.now += after
        looked = evaluator.look(self.now)
        assert looked is not None
        return looked

    def rule(self, name: str, kind: str = "unpriced_usage", tenant: str = "", **settings: object) -> None:
        with self.database.session() as session:
            create_rule(session, self.author, NewRule(name, kind, tenant, settings, ["slack"]))

    def deliveries(self) -> list[tuple[str, list[str]]]:
        with self.database.session() as session:
            rows = session.scalars(select(AlertDelivery).order_by(AlertDelivery.created_at, AlertDelivery.event))
            bodies: list[tuple[str, Any]] = [(row.event, row.body["alerts"]) for row in rows]
            return [(event, [alert["summary"] for alert in alerts]) for event, alerts in bodies]

    @property
    def author(self) -> Author:
        return Author("test", self.now)

    def _source(self, look: AlertInputs, rules: Sequence[Rule]) -> Findings:
        if self.fault is not None:
            raise self.fault
        return by_rule(rules, self.findings)


@pytest.fixture
def world(control_database: ControlDatabase) -> Iterator[World]:
    with control_database.session() as session:
        for tenant in ("acme", "globex"):
            create_tenant(session, Author("test", NOON), tenant, tenant)
        sealer = Sealer(token_urlsafe(32))
        create_channel(session, Author("test", NOON), "slack", "", "slack", "https://hooks.slack.example/T/B/s", sealer)
    yield World(control_database)


def test_a_condition_is_told_once_however_often_it_is_looked_at_and_once_when_it_is_over(world: World) -> None:
    world.rule("money")
    world.findings = [Finding("acme/x", "acme has no price", tenant="acme"), Finding("globex/x", "globex has none")]
    evaluator = world.evaluator()
    for _ in range(4):
        world.look(evaluator)
    assert world.deliveries() == [("firing", ["acme has no price", "globex has none"])]  # grouped: one notice
    world.findings = world.findings[:1]
    world.look(evaluator)
    world.look(evaluator)
    assert world.deliveries()[1:] == [("resolved", ["globex has none"])]
    world.findings.append(Finding("globex/x", "globex again"))
    world.look(evaluator)
    assert world.deliveries()[2:] == [("firing", ["globex again"])]


def test_a_restarted_evaluator_tells_nothing_again_and_catches_up_with_what_changed(world: World) -> None:
    world.rule("money")
    world.findings = [Finding("a", "first")]
    world.look(world.evaluator())
    world.findings = [Finding("b", "second")]
    restarted = world.evaluator("two")
    assert restarted.look(world.now) is None, "the lease is not free yet"
    world.look(restarted, timedelta(hours=3))
    assert world.deliveries() == [("firing", ["first"]), ("firing", ["second"]), ("resolved", ["first"])]


def test_of_two_evaluators_one_acts_and_the_other_takes_over_when_it_is_gone(world: World) -> None:
    world.rule("money")
    world.findings = [Finding("a", "first")]
    one, two = world.evaluator("one"), world.evaluator("two")
    world.look(one)
    assert two.look(world.now + LEASE_LASTS - timedelta(seconds=1)) is None
    assert two.look(world.now + LEASE_LASTS) is not None
    assert one.look(world.now + LEASE_LASTS) is None
    two.stop(world.now + LEASE_LASTS)
    assert one.look(world.now + LEASE_LASTS) is not None, "a lease that was given back need not be waited for"
    assert world.deliveries() == [("firing", ["first"])]


def test_an_evaluator_that_lost_its_lease_in_the_middle_of_a_look_changes_nothing(world: World) -> None:
    world.rule("money")

    def overtaken(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
        with world.database.session() as session:
            assert take_lease(session, "alert-evaluator", "two", look.now + LEASE_LASTS, LEASE_LASTS) is not None
        return by_rule(rules, [Finding("a", "first")])

    with pytest.raises(Conflict, match="another process's"):
        world.evaluator("one", {"unpriced_usage": overtaken}).look(world.now)
    assert world.deliveries() == []


def test_the_same_settlement_twice_at_once_is_one_alert(world: World) -> None:
    """Were the lease to fail, the unique key of open alerts still holds: the second transaction is refused."""
    rule = Rule.of("money", "unpriced_usage", "", ("slack",), {})
    with world.database.session() as session:
        settle_alerts(session, [(rule, [Finding("a", "first")])], NOON)
    with world.database.session() as session:
        settle_alerts(session, [(rule, [Finding("a", "first")])], NOON)
    assert world.deliveries() == [("firing", ["first"])]


def test_what_the_store_cannot_tell_now_is_not_resolved(world: World) -> None:
    world.rule("money")
    world.findings = [Finding("a", "first")]
    evaluator = world.evaluator()
    world.look(evaluator)
    world.fault = StoreUnavailable("the store is away")
    looked = world.look(evaluator)
    assert looked.skipped == {"unpriced_usage": "the store is away"}
    world.fault = None
    world.look(evaluator)
    assert world.deliveries() == [("firing", ["first"])]


def test_a_kind_that_fails_by_surprise_is_named_and_holds_no_other_up(world: World) -> None:
    world.rule("money")
    world.rule("full", "saturation")
    world.findings = [Finding("a", "first")]

    def surprise(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
        raise ZeroDivisionError

    evaluator = world.evaluator(sources={"unpriced_usage": SOURCES["unpriced_usage"], "saturation": surprise})
    assert set(world.look(evaluator).skipped) == {"unpriced_usage", "saturation"}, "that store is away"
    looked = world.look(world.evaluator(sources={"unpriced_usage": world._source, "saturation": surprise}))
    assert looked.skipped == {"saturation": "failed here (ZeroDivisionError); the log says where"}
    assert world.deliveries() == [("firing", ["first"])]


def test_what_is_read_for_a_look_keeps_no_writer_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has one writer at a time, and gateways write what was spent to the same file."""
    world.rule("money")

    def loaded(session: object, since: datetime) -> list[BudgetSpending]:
        with world.database.session() as other:
            create_tenant(other, world.author, "meanwhile", "Meanwhile")
        return []

    monkeypatch.setattr("analytics.alerts.evaluator.load_spending", loaded)
    world.look(world.evaluator())


def test_a_tenant_s_silence_does_not_keep_the_platform_from_hearing_of_it(world: World) -> None:
    world.rule("all")
    world.rule("own", tenant="acme")
    with world.database.session() as session:
        create_silence(session, world.author, NewSilence("acme", NOON + timedelta(hours=1)))
    world.findings = [Finding("a", "acme's", tenant="acme")]
    world.look(world.evaluator())
    with world.database.session() as session:
        told = {alert.rule_id for alert in list_alerts(session) if alert.notified_at is not None}
    assert told == {"all"}


def test_a_silenced_alert_is_raised_and_told_when_the_silence_ends_if_it_is_still_true(world: World) -> None:
    world.rule("money")
    with world.database.session() as session:
        ends_at = NOON + timedelta(minutes=10)
        create_silence(session, world.author, NewSilence("", ends_at, rule_id="money", subject="acme/"))
    world.findings = [Finding("acme/x", "silenced", tenant="acme"), Finding("globex/x", "told", tenant="globex")]
    evaluator = world.evaluator()
    world.look(evaluator)
    assert world.deliveries() == [("firing", ["told"])]
    with world.database.session() as session:
        assert {alert.summary for alert in list_alerts(session, is_open=True)} == {"silenced", "told"}
    world.look(evaluator, timedelta(minutes=10))
    assert world.deliveries()[1:] == [("firing", ["silenced"])]


def test_an_alert_that_was_never_told_ends_without_a_word(world: World) -> None:
    world.rule("money")
    with world.database.session() as session:
        create_silence(session, world.author, NewSilence("", NOON + timedelta(hours=1)))
    world.findings = [Finding("a", "silenced")]
    evaluator = world.evaluator()
    world.look(evaluator)
    world.findings = []
    world.look(evaluator)
    assert world.deliveries() == []


def test_the_alerts_of_a_deleted_rule_end_and_nobody_is_told(world: World) -> None:
    world.rule("money")
    world.findings = [Finding("a", "first")]
    evaluator = world.evaluator()
    world.look(evaluator)
    with world.database.session() as session:
        delete_row(session, world.author, AlertRule, "money")
    world.look(evaluator)
    with world.database.session() as session:
        assert list_alerts(session, is_open=True) == []
    assert world.deliveries() == [("firing", ["first"])]


def test_a_tenant_s_rule_sees_its_tenant_alone(world: World) -> None:
    world.rule("own", tenant="acme")
    world.findings = [Finding("a", "acme's", tenant="acme"), Finding("g", "globex's", tenant="globex")]
    world.look(world.evaluator())
    assert world.deliveries() == [("firing", ["acme's"])]


def routed(world: World) -> list[tuple[str, str, list[str]]]:
    """Return channel, reason and summaries of every notice, in the order of their channels."""
    with world.database.session() as session:
        rows = session.scalars(select(AlertDelivery).order_by(AlertDelivery.channel_id, AlertDelivery.created_at))
        bodies: list[tuple[str, Any]] = [(row.channel_id, row.body) for row in rows]
        return [(channel, body["reason"], [each["summary"] for each in body["alerts"]]) for channel, body in bodies]


def test_channels_take_the_severities_and_tenants_that_they_name(world: World) -> None:
    with world.database.session() as session:
        sealer = Sealer(token_urlsafe(32))
        for name, severities, tenants in (
            ("pages", ["page"], []),
            ("acmes", [], ["acme"]),
            ("none", ["page"], ["acme"]),
        ):
            url = f"https://hooks.slack.example/{name}"
            create_channel(
                session, world.author, name, "", "slack", url, sealer, severities=severities, tenants=tenants
            )
        new = NewRule("money", "unpriced_usage", "", {}, ["slack", "pages", "acmes", "none"])
        create_rule(session, world.author, new)
    world.findings = [
        Finding("acme/x", "acme's ticket", "ticket", "acme"),
        Finding("globex/x", "globex's page", "page", "globex"),
        Finding("host", "the platform's ticket"),
    ]
    world.look(world.evaluator())
    assert routed(world) == [
        ("acmes", "opened", ["acme's ticket"]),
        ("pages", "opened", ["globex's page"]),
        ("slack", "opened", ["acme's ticket", "globex's page", "the platform's ticket"]),
    ]


def test_a_rise_of_severity_is_sent_again_and_reaches_the_channel_for_pages(world: World) -> None:
    with world.database.session() as session:
        sealer, url = Sealer(token_urlsafe(32)), "https://hooks.slack.example/pages"
        create_channel(session, world.author, "pages", "", "slack", url, sealer, severities=["page"])
        create_rule(session, world.author, NewRule("promise", "unpriced_usage", "", {}, ["slack", "pages"]))
    evaluator = world.evaluator()
    steps: list[tuple[Severity, int]] = [("ticket", 1), ("ticket", 1), ("ticket", 2), ("page", 1), ("page", 1)]
    for severity, level in [*steps, ("ticket", 2)]:
        world.findings = [Finding("a", f"{severity} {level}", severity, level=level)]
        world.look(evaluator)
    assert routed(world) == [
        ("pages", "escalated", ["page 1"]),
        ("slack", "opened", ["ticket 1"]),
        ("slack", "escalated", ["ticket 2"]),
        ("slack", "escalated", ["page 1"]),
    ], "a fall is no news"
    world.findings = []
    world.look(evaluator)
    assert routed(world)[1][:2] == ("pages", "resolved")


def test_an_open_alert_is_repeated_until_it_is_acknowledged(world: World) -> None:
    world.rule("money", repeat_hours=4)
    world.findings = [Finding("a", "first")]
    evaluator = world.evaluator()
    for hours in (0, 3, 1, 3, 1):  # sent at 0, 4 and 8 hours
        world.look(evaluator, timedelta(hours=hours))
    assert [reason for _, reason, _ in routed(world)] == ["opened", "repeated", "repeated"]
    with world.database.session() as session:
        (alert,) = list_alerts(session, is_open=True)
        acknowledge_alert(session, world.author, alert.id)
    world.look(evaluator, timedelta(hours=9))
    assert len(routed(world)) == 3


def test_a_budget_s_channels_are_notified_of_that_budget_alone(world: World) -> None:
    with world.database.session() as session:
        budgets = {
            name: create_budget(
                session,
                world.author,
                NewBudget("acme", "tenant", name, amount_usd=Decimal(100), thresholds=(80,), channels=channels),
            ).id
            for name, channels in (("month", ("slack",)), ("day", ()))
        }
        for start_ns, budget in (
            (period_bounds("month", "UTC", unix_ns(NOON))[0], budgets["month"]),
            (period_bounds("day", "UTC", unix_ns(NOON))[0], budgets["day"]),
        ):
            publish_states(session, "gateway-1", [GatewayState(budget, "", start_ns, 85 * PICO)], NOON)
    evaluator = world.evaluator(sources=SOURCES)
    world.look(evaluator)
    (notice,) = routed(world)
    assert notice[:2] == ("slack", "opened") and notice[2][0].startswith(
        f"budget {budgets['month']} (acme, this month)"
    )
    with world.database.session() as session:
        with pytest.raises(Conflict, match="notifies channel 'slack'"):
            delete_row(session, world.author, AlertChannel, "slack")
    with world.database.session() as session:
        update_budget(session, world.author, "acme", budgets["month"], BudgetChange(channels=()))
    world.look(evaluator)
    with world.database.session() as session:
        assert list_alerts(session, is_open=True) == [], "a budget that notifies nobody raises no alert of its own"
        with pytest.raises(NotFound, match="channel 'nowhere' does not exist for tenant 'acme'"):
            update_budget(session, world.author, "acme", budgets["day"], BudgetChange(channels=("nowhere",)))
    assert len(routed(world)) == 1


@pytest.fixture
def spend(world: World) -> Callable[..., None]:
    with world.database.session() as session:
        budget = create_budget(
            session,
            world.author,
            NewBudget("acme", "tenant", "month", amount_usd=Decimal(100), thresholds=(80, 100)),
        )

    def spend(usd: int, at: datetime = NOON) -> None:
        start_ns, _ = period_bounds("month", "UTC", unix_ns(at))
        with world.database.session() as session:
            publish_states(session, "gateway-1", [GatewayState(budget.id, "", start_ns, usd * PICO)], at)

    return spend


@pytest.mark.parametrize(("usd", "told"), [(79, []), (80, [80]), (99, [80]), (100, [100]), (250, [100])])
def test_a_threshold_is_told_at_its_percent_and_not_below(
    world: World, spend: Callable[..., None], usd: int, told: list[int]
) -> None:
    world.rule("money", "budget_threshold")
    spend(usd)
    evaluator = world.evaluator(sources=SOURCES)
    world.look(evaluator)
    world.look(evaluator)
    with world.database.session() as session:
        alerts = list_alerts(session, tenant="acme")
        assert sorted(int(str(alert.facts["threshold_percent"])) for alert in alerts) == told
    assert len(world.deliveries()) == (1 if told else 0)


def test_only_the_highest_threshold_stays_open_and_says_what_is_used(world: World, spend: Callable[..., None]) -> None:
    world.rule("money", "budget_threshold", thresholds=[30, 50, 80])
    evaluator = world.evaluator(sources=SOURCES)
    for usd, threshold in ((35, 30), (60, 50), (99, 80)):
        spend(usd)
        world.look(evaluator)
        with world.database.session() as session:
            (alert,) = list_alerts(session, tenant="acme", is_open=True)
            assert alert.facts["threshold_percent"] == threshold and alert.severity == "ticket"
            assert alert.summary.endswith(f": {usd} % used (threshold {threshold} %): {usd} of 100 USD")
    assert [event for event, _ in world.deliveries()] == ["firing"] * 3, "the end of a lower one is no news"


def test_a_hard_budget_that_refuses_is_told_whatever_its_thresholds_and_when_it_no_longer_does(
    world: World, spend: Callable[..., None]
) -> None:
    world.rule("money", "budget_threshold", thresholds=[90])
    evaluator = world.evaluator(sources=SOURCES)
    spend(70)
    world.look(evaluator)
    assert world.deliveries() == []
    with world.database.session() as session:
        budget = session.scalars(select(Budget)).one()
        start_ns, _ = period_bounds("month", "UTC", unix_ns(NOON))
        # What is left holds no request, so it refuses below 100 %.
        assert record_event(session, PassedThreshold(budget.id, "", start_ns, 100, 100 * PICO, 70 * PICO), NOON)
        budget_id = budget.id
    world.look(evaluator)
    with world.database.session() as session:
        (alert,) = list_alerts(session, tenant="acme", is_open=True)
        assert alert.severity == "page" and "refuses requests: 70 % used: 70 of 100 USD" in alert.summary
    with world.database.session() as session:
        update_budget(session, world.author, "acme", budget_id, BudgetChange(amount_usd=Decimal(200)))
    world.look(evaluator)
    assert [event for event, _ in world.deliveries()] == ["firing", "resolved"]
    with world.database.session() as session:  # it is exhausted again: a new event, as its amount is higher
        assert record_event(session, PassedThreshold(budget_id, "", start_ns, 100, 200 * PICO, 199 * PICO), NOON)
        assert not record_event(session, PassedThreshold(budget_id, "", start_ns, 100, 200 * PICO, 199 * PICO), NOON)
    world.look(evaluator)
    world.look(evaluator, timedelta(days=40))  # December: its period turned
    assert [event for event, _ in world.deliveries()] == ["firing", "resolved"] * 2


def test_a_threshold_is_told_once_in_each_period_and_its_end_is_no_news(
    world: World, spend: Callable[..., None]
) -> None:
    world.rule("money", "budget_threshold", thresholds=[50])
    evaluator = world.evaluator(sources=SOURCES)
    spend(60)
    world.look(evaluator)
    spend(90)
    world.look(evaluator)
    assert len(world.deliveries()) == 1
    next_month = datetime(2026, 12, 1, 0, 10, tzinfo=UTC)
    spend(10, next_month)
    world.look(evaluator, next_month - world.now)
    spend(55, next_month)
    world.look(evaluator)
    world.look(evaluator)
    assert [event for event, _ in world.deliveries()] == ["firing", "firing"]


def test_a_threshold_crossed_while_nobody_looked_is_told_after_the_period_too(
    world: World, spend: Callable[..., None]
) -> None:
    world.rule("money", "budget_threshold")
    evaluator = world.evaluator(sources=SOURCES)
    world.look(evaluator)
    spend(85, NOON + timedelta(days=3))
    world.look(evaluator, timedelta(days=30))  # it is December; the evaluator was down since
    world.look(evaluator)
    assert len(world.deliveries()) == 1
    world.rule("later", "budget_threshold")
    world.look(evaluator)
    assert len(world.deliveries()) == 1, "a rule made in December does not tell of November"


def test_a_forecast_is_told_once_a_pace_can_be_known_and_is_above_the_amount(
    world: World, spend: Callable[..., None]
) -> None:
    world.rule("pace", "budget_forecast", after_percent=10)
    evaluator = world.evaluator(sources=SOURCES)
    spend(30)  # 30 USD within a minute: no pace yet
    world.look(evaluator, timedelta(minutes=1))
    assert world.deliveries() == []
    world.look(evaluator, timedelta(days=5))  # 30 in 5 days of the 28.5 that are left: 171 at the end
    world.look(evaluator)
    ((event, (summary,)),) = world.deliveries()
    assert event == "firing" and "will have used" in summary and "of 100 USD" in summary


def test_holds_begin_and_end_with_what_asks_for_them(world: World) -> None:
    hold = Hold("chat", "shed_batch", "acme", "small", "it burns")
    with world.database.session() as session:
        assert write_holds(session, [hold], NOON) == 1
        assert write_holds(session, [hold], NOON + timedelta(minutes=1)) == 0
        (row,) = list_holds(session, NOON)
        assert (row.slo_id, row.hook, row.tenant_id, row.model, row.since) == (
            "chat",
            "shed_batch",
            "acme",
            "small",
            NOON,
        )
        assert write_holds(session, [], NOON + timedelta(minutes=2)) == 1
        assert list_holds(session, NOON) == []
        assert write_holds(session, [hold], NOON + timedelta(minutes=3)) == 1
        assert list_holds(session, NOON)[0].since == NOON + timedelta(minutes=3)
        about_others = Hold("chat", "shed_batch", "globex", "large", "it burns")
        assert write_holds(session, [about_others], NOON + timedelta(minutes=4)) == 1
        assert [(row.tenant_id, row.model) for row in list_holds(session, NOON)] == [("globex", "large")]


@pytest.mark.parametrize(
    ("kind", "tenant", "settings", "said"),
    [
        ("weather", "", {}, "kind 'weather' is unknown"),
        ("gpu_fault", "acme", {}, "leave the tenant out"),
        ("saturation", "", {"kv_percent": 101}, "use 1 to 100"),
        ("saturation", "", {"kv_percent": True}, "not a number"),
        ("saturation", "", {"speed": 1}, "no setting 'speed'"),
        ("budget_threshold", "", {"thresholds": [80, 50]}, "rising percents"),
        ("budget_threshold", "", {"thresholds": [0]}, "rising percents"),
        ("budget_threshold", "", {"thresholds": []}, ""),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_name(kind: str, tenant: str, settings: dict[str, Any], said: str) -> None:
    if not said:
        assert Rule.of("r", kind, tenant, (), settings).thresholds == ()
        return
    with pytest.raises(InvalidRequest, match=said):
        Rule.of("r", kind, tenant, (), settings)


def test_a_lease_is_held_by_term_so_that_a_namesake_is_another(world: World) -> None:
    with world.database.session() as session:
        first = take_lease(session, "x", "one", NOON, LEASE_LASTS)
        again = take_lease(session, "x", "one", NOON, LEASE_LASTS)
        assert first is not None and first == again
        other = take_lease(session, "x", "two", NOON + LEASE_LASTS, LEASE_LASTS)
        assert other is not None and other.term == first.term + 1
        with pytest.raises(Conflict):
            require_lease(session, first, NOON)
        require_lease(session, other, NOON + LEASE_LASTS)


def test_a_lease_taken_by_a_clock_that_was_wrong_is_free_and_one_of_a_clock_that_is_ahead_is_not(world: World) -> None:
    with world.database.session() as session:
        assert take_lease(session, "x", "ahead", NOON + LEASE_LASTS, LEASE_LASTS) is not None
        assert take_lease(session, "x", "right", NOON, LEASE_LASTS) is None
        assert take_lease(session, "x", "right", NOON - timedelta(seconds=1), LEASE_LASTS) is not None
