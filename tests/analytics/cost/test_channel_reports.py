"""Cost reports that channels are sent: one for each period that is over, with its sums, by mail from end to end."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any

import pytest
from sqlalchemy import select

from analytics.alerts.dispatcher import Dispatcher
from analytics.alerts.links import Links
from analytics.cost.channel_reports import ChannelReports
from backends.channels.base import ChannelSettings, MailServer
from backends.channels.table import open_senders
from backends.control.alert_rules import ChannelChange, create_channel, update_channel
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.sealer import Sealer
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.control import AlertDelivery
from contracts.errors import InvalidRequest
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request
from tests.receivers import MailReceiver

Record = Callable[[Sequence[RequestRecord]], None]
MONDAY = datetime(2051, 7, 10, tzinfo=UTC)  # a year that no other test writes to
USD = 10**12
SEALER = Sealer(token_urlsafe(32))


def author(at: datetime) -> Author:
    return Author("test", at)


def spent(at: datetime, tenant: str, team: str, model: str, usd: float, **more: Any) -> RequestRecord:
    usage = Usage(input_text=10, output_text=1)
    cost = int(usd * USD)
    return request(at, who=Identity(tenant, team), model=model, usage=usage, cost_pico_usd=cost, **more)


@pytest.fixture(scope="module", autouse=True)
def spending(record: Record) -> None:
    day = timedelta(days=1)
    record(
        [
            spent(MONDAY - 7 * day, "mail-a", "web", "large", 4),
            spent(MONDAY, "mail-a", "web", "large", 5),
            spent(MONDAY + day, "mail-a", "app", "small", 1),
            spent(MONDAY + 6 * day, "mail-b", "", "large", 0.004),
            spent(MONDAY + 7 * day - timedelta(minutes=30), "mail-a", "web", "small", 100),  # Monday already in Berlin
        ]
    )


def reports_of(database: ControlDatabase) -> list[tuple[str, str, list[str]]]:
    with database.session() as session:
        rows = session.scalars(select(AlertDelivery).order_by(AlertDelivery.channel_id, AlertDelivery.created_at))
        bodies: list[tuple[str, Any]] = [(row.channel_id, row.body) for row in rows]
        return [(channel, body["title"], body["lines"]) for channel, body in bodies]


def test_a_week_is_reported_once_when_it_is_over_in_the_tenants_own_calendar(
    control_database: ControlDatabase, reader: StoreClient
) -> None:
    now = [MONDAY + timedelta(days=7, hours=1)]
    with control_database.session() as session:
        create_tenant(session, author(MONDAY), "mail-a", "A", time_zone="Europe/Berlin")
        create_tenant(session, author(MONDAY), "mail-b", "B")
        channel = ("email", "cfo@mail.example", SEALER)
        create_channel(session, author(MONDAY), "berlin", "mail-a", *channel, report="week")
        create_channel(session, author(MONDAY), "both", "", *channel, tenants=["mail-a", "mail-b"], report="week")
        create_channel(session, author(MONDAY), "none", "", *channel)
    reports = ChannelReports(control_database, reader, lambda: now[0])
    assert (reports.write_due(), reports.write_due()) == (2, 0)
    found = reports_of(control_database)
    assert [title for _, title, _ in found] == [
        "Cost of the week 2051-07-10 to 2051-07-16 (mail-a)",
        "Cost of the week 2051-07-03 to 2051-07-09 (mail-a, mail-b)",  # UTC's week has not settled yet
    ]
    assert found[0][2] == [
        "Total: 6.00 USD for 2 requests, +50 % against the period before (4.00 USD)",
        "team web: 5.00 USD, 1 requests",
        "team app: 1.00 USD, 1 requests",
        "model large: 5.00 USD, 1 requests",
        "model small: 1.00 USD, 1 requests",
    ]
    now[0] += timedelta(hours=1)
    assert reports.write_due() == 1, "two hours after the week's end"
    assert reports_of(control_database)[-1][2][:3] == [
        "Total: 106.00 USD for 4 requests, +2550 % against the period before (4.00 USD)",
        "tenant mail-a: 106.00 USD, 3 requests",
        "tenant mail-b: 0.004000 USD, 1 requests",
    ]


def test_only_channels_that_show_text_take_reports(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        create_channel(session, author(MONDAY), "pd", "", "pagerduty", "k" * 32, SEALER)
        with pytest.raises(InvalidRequest, match="takes alerts, not reports"):
            update_channel(session, author(MONDAY), "pd", ChannelChange(report="day"), SEALER)
        session.rollback()


async def test_a_report_arrives_by_mail(control_database: ControlDatabase, reader: StoreClient) -> None:
    now = MONDAY + timedelta(days=1, hours=2)
    async with MailReceiver() as mail:
        with control_database.session() as session:
            create_tenant(session, author(MONDAY), "mail-a", "A")
            create_channel(session, author(MONDAY), "day", "mail-a", "email", "cfo@mail.example", SEALER, report="day")
        assert ChannelReports(control_database, reader, lambda: now).write_due() == 1
        server = MailServer("127.0.0.1", mail.port, has_tls=False)
        async with open_senders(ChannelSettings(timeout_seconds=10, mail=server)) as senders:
            links = Links("https://llm.example")
            assert await Dispatcher(control_database, senders, lambda: now, SEALER, links).send_due() == 1
    ((to, message),) = mail.mails
    assert to == "cfo@mail.example" and "Cost of 2051-07-10 (mail-a)" in message
    assert "Total: 5.00 USD for 1 requests" in message and "https://llm.example/costs?tenant=mail-a" in message
