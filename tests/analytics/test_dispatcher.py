"""The outbox, real receivers and a clock that is handed in: every notice arrives once, or it is said why not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from secrets import token_urlsafe

import pytest
from sqlalchemy import select

from analytics.alerts.dispatcher import Dispatcher
from backends.channels.base import ChannelSettings, MailServer, Notice, Outcome
from backends.channels.table import open_senders
from backends.control.alert_log import settle_alerts, write_delivery
from backends.control.alert_outbox import ATTEMPT_LASTS, claim_notice, due_notices
from backends.control.alert_rules import create_channel, delete_row
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.sealer import Sealer
from contracts.control import AlertChannel, AlertDelivery
from contracts.rules.alerts import Finding, Rule
from tests.receivers import HttpReceiver, MailReceiver

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
INWARD = (ip_network("127.0.0.0/8"),)
SEALER = Sealer(token_urlsafe(32))


class Clock:
    """A moment that the test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class Desk:
    """A control database with channels, and a dispatcher over it."""

    def __init__(self, database: ControlDatabase, dispatcher: Dispatcher, clock: Clock) -> None:
        self.database, self.dispatcher, self.clock = database, dispatcher, clock

    def channel(self, name: str, kind: str, address: str) -> None:
        with self.database.session() as session:
            create_channel(session, Author("test", NOON), name, "", kind, address, SEALER)

    def settle(self, *fingerprints: str, channels: tuple[str, ...] = ("to",)) -> None:
        rule = Rule.of("money", "unpriced_usage", "", channels, {})
        with self.database.session() as session:
            settle_alerts(session, [(rule, [Finding(each, each) for each in fingerprints])], self.clock.now)

    async def send(self, after: timedelta = timedelta(0)) -> int:
        self.clock.now += after
        return await self.dispatcher.send_due()

    def states(self) -> list[tuple[str, str, int, str]]:
        with self.database.session() as session:
            rows = session.scalars(select(AlertDelivery).order_by(AlertDelivery.created_at, AlertDelivery.event))
            return [(row.event, row.state, row.attempts, row.last_error) for row in rows]


@asynccontextmanager
async def desk_of(database: ControlDatabase, settings: ChannelSettings) -> AsyncIterator[Desk]:
    clock = Clock()
    async with open_senders(settings) as senders:
        yield Desk(database, Dispatcher(database, senders, clock, SEALER), clock)


@pytest.fixture
async def desk(control_database: ControlDatabase) -> AsyncIterator[Desk]:
    async with desk_of(control_database, ChannelSettings(timeout_seconds=10, inward=INWARD)) as made:
        yield made


async def test_a_notice_is_sent_once_and_its_end_once(desk: Desk) -> None:
    async with HttpReceiver() as receiver:
        desk.channel("to", "slack", receiver.url)
        desk.settle("a")
        assert [await desk.send(), await desk.send(timedelta(minutes=5))] == [1, 0]
        desk.clock.now += timedelta(minutes=1)
        desk.settle()
        assert [await desk.send(), await desk.send(timedelta(hours=5))] == [1, 0]
    assert [call.json["text"] for call in receiver.calls] == ["Alert: a", "Resolved: a"]
    assert desk.states() == [("firing", "delivered", 1, ""), ("resolved", "delivered", 1, "")]


async def test_a_receiver_that_is_down_gets_the_notice_when_it_is_back_in_order(desk: Desk) -> None:
    async with HttpReceiver(statuses=[503, 503, 200]) as receiver:
        desk.channel("to", "slack", receiver.url)
        desk.settle("a")
        assert await desk.send() == 0
        assert desk.states() == [("firing", "waiting", 1, "answered 503")]
        desk.clock.now += timedelta(seconds=1)
        desk.settle()  # it is over before anyone was told
        assert await desk.send(timedelta(seconds=8)) == 0, "10 seconds have not passed"
        assert len(receiver.calls) == 1
        assert await desk.send(timedelta(seconds=1)) == 0
        assert len(receiver.calls) == 2
        assert await desk.send(timedelta(seconds=20)) == 1
        assert await desk.send() == 1, "the end is told after the beginning"
    assert [call.json["text"] for call in receiver.calls] == ["Alert: a", "Alert: a", "Alert: a", "Resolved: a"]


async def test_a_receiver_that_stays_down_is_given_up_after_a_day(desk: Desk) -> None:
    async with HttpReceiver(statuses=[500]) as receiver:
        desk.channel("to", "webhook", receiver.url)
        desk.settle("a")
        for _ in range(40):
            await desk.send(timedelta(hours=1))
    ((_, state, attempts, error),) = desk.states()
    assert (state, error) == ("given_up", "answered 500") and 10 < attempts < 30
    assert len(receiver.calls) == attempts
    assert len({call.headers["x-tollkeeper-event-id"] for call in receiver.calls}) == 1


async def test_a_hanging_webhook_is_asked_again_and_a_hanging_slack_is_not(control_database: ControlDatabase) -> None:
    """A webhook's receiver knows the notice by its id; in Slack, people would read it twice."""
    async with desk_of(control_database, ChannelSettings(timeout_seconds=0.5, inward=INWARD)) as desk:
        async with HttpReceiver(statuses=[0]) as slack, HttpReceiver(statuses=[0]) as webhook:
            desk.channel("slack", "slack", slack.url)
            desk.channel("hook", "webhook", webhook.url)
            desk.settle("a", channels=("slack", "hook"))
            await desk.send()
            states = {state: error for _, state, _, error in desk.states()}
            assert set(states) == {"unknown", "waiting"}
            assert "did not answer within 0.5 seconds; no answer came" in states["unknown"]
            await desk.send(timedelta(hours=2))
        assert (len(slack.calls), len(webhook.calls)) == (1, 2)


@pytest.mark.parametrize(("kind", "is_sent"), [("webhook", True), ("slack", False)])
async def test_a_process_that_died_while_sending_does_not_tell_people_twice(
    desk: Desk, kind: str, is_sent: bool
) -> None:
    async with HttpReceiver() as receiver:
        desk.channel("to", kind, receiver.url)
        desk.settle("a")
        with desk.database.session() as session:
            (due,) = due_notices(session, desk.clock.now)
            assert claim_notice(session, due, desk.clock.now)
            assert not claim_notice(session, due, desk.clock.now), "two processes have one notice"
        assert await desk.send(ATTEMPT_LASTS - timedelta(seconds=1)) == 0
        await desk.send(timedelta(seconds=1))
        assert len(receiver.calls) == int(is_sent)
    ((_, state, _, error),) = desk.states()
    assert state == ("delivered" if is_sent else "unknown")
    assert is_sent or "whether it arrived is not known" in error


async def test_one_channel_that_fails_holds_no_other_up(desk: Desk) -> None:
    async with HttpReceiver(statuses=[410]) as broken, HttpReceiver() as works:
        desk.channel("broken", "slack", broken.url)
        desk.channel("works", "slack", works.url)
        desk.settle("a", channels=("broken", "works", "unknown"))
        assert await desk.send() == 1
    assert {(state, error) for _, state, _, error in desk.states()} == {("delivered", ""), ("given_up", "answered 410")}


async def test_an_address_is_kept_sealed_and_one_sealed_with_another_key_is_named_until_the_key_is_back(
    desk: Desk,
) -> None:
    async with HttpReceiver() as receiver:
        desk.channel("to", "slack", receiver.url)
        with desk.database.session() as session:
            channel = session.get(AlertChannel, "to")
            assert channel is not None and "secret" not in channel.address + channel.shown
        desk.settle("a")
        mine = desk.dispatcher
        async with open_senders(ChannelSettings(timeout_seconds=10, inward=INWARD)) as senders:
            desk.dispatcher = Dispatcher(desk.database, senders, desk.clock, Sealer(token_urlsafe(32)))
            assert await desk.send() == 0
        ((_, state, attempts, error),) = desk.states()
        assert (state, attempts) == ("waiting", 1) and "sealed with another key" in error
        desk.dispatcher = mine
        assert await desk.send(timedelta(seconds=10)) == 1
        assert len(receiver.calls) == 1


async def test_a_notice_of_a_channel_that_is_gone_is_given_up_by_name(desk: Desk) -> None:
    desk.channel("to", "slack", "https://hooks.slack.example/T/B/s")
    desk.settle("a")
    with desk.database.session() as session:
        delete_row(session, Author("test", NOON), AlertChannel, "to")
    assert await desk.send() == 0
    assert desk.states() == [("firing", "given_up", 0, "the channel is gone")]


async def test_a_notice_is_not_sent_to_another_tenant_s_channel_of_the_same_id(desk: Desk) -> None:
    async with HttpReceiver() as receiver:
        desk.channel("to", "slack", "https://hooks.slack.example/T/B/s")
        desk.settle("a")
        with desk.database.session() as session:
            delete_row(session, Author("test", NOON), AlertChannel, "to")
            create_tenant(session, Author("test", NOON), "globex", "Globex")
            create_channel(session, Author("test", NOON), "to", "globex", "slack", receiver.url, SEALER)
        assert await desk.send() == 0
        assert receiver.calls == []
    assert desk.states() == [("firing", "given_up", 0, "the channel is gone")]


async def test_a_dispatcher_that_is_stopped_finishes_what_it_has_begun_and_begins_nothing(
    control_database: ControlDatabase,
) -> None:
    """Slack is not asked again if nobody knows whether it was told: what was claimed has to be sent."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def send(self, notice: Notice, address: str) -> Outcome:
            begun.set()
            await go_on.wait()
            return Outcome()

    clock = Clock()
    desk = Desk(control_database, Dispatcher(control_database, {"slack": Slow()}, clock, SEALER), clock)
    desk.channel("to", "slack", "https://hooks.slack.example/T/B/s")
    for number in range(12):
        desk.settle(*(str(each) for each in range(number + 1)))
    sending = asyncio.create_task(desk.send())
    await asyncio.wait_for(begun.wait(), 10)
    sending.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(sending, 10)
    states = [state for _, state, _, _ in desk.states()]
    assert set(states) == {"delivered", "waiting"} and states.count("delivered") <= 8


async def test_the_same_notice_cannot_be_written_twice(desk: Desk) -> None:
    desk.channel("to", "slack", "https://hooks.slack.example/T/B/s")
    with desk.database.session() as session:
        channel = session.get(AlertChannel, "to")
        assert channel is not None
        assert [write_delivery(session, channel, "firing", {"ids": ["alt_1"]}, NOON) for _ in range(2)] == [1, 0]
        assert write_delivery(session, channel, "resolved", {"ids": ["alt_1"]}, NOON) == 1


async def test_pagerduty_is_told_of_each_alert_apart_so_that_each_is_closed(control_database: ControlDatabase) -> None:
    async with HttpReceiver(statuses=[202]) as receiver:
        settings = ChannelSettings(timeout_seconds=10, inward=INWARD, pagerduty_url=receiver.url)
        async with desk_of(control_database, settings) as desk:
            desk.channel("to", "pagerduty", "k" * 32)
            desk.settle("a", "b")
            assert await desk.send() == 2
            desk.clock.now += timedelta(minutes=1)
            desk.settle("b")
            assert await desk.send() == 1
    assert sorted(call.json["event_action"] for call in receiver.calls) == ["resolve", "trigger", "trigger"]
    assert len({call.json["dedup_key"] for call in receiver.calls}) == 2


async def test_mail_goes_out_and_mail_that_is_down_is_named(control_database: ControlDatabase) -> None:
    async with MailReceiver() as receiver:
        mail = MailServer("127.0.0.1", receiver.port, sender="tk@example.com", has_tls=False)
        async with desk_of(control_database, ChannelSettings(10, mail=mail)) as desk:
            desk.channel("to", "email", "ops@example.com")
            desk.settle("a")
            assert await desk.send() == 1
    async with desk_of(control_database, ChannelSettings(10, mail=mail)) as desk:
        desk.clock.now = NOON + timedelta(minutes=1)
        desk.settle("a", "b")
        assert await desk.send() == 0
        assert desk.states()[-1] == (
            "firing", "waiting", 1, "the mail server could not be used (ConnectionRefusedError)"
        )  # fmt: skip
    assert len(receiver.mails) == 1
