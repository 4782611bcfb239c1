"""Notices to real local receivers: what arrives, and what is said of those that do not take them."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from backends.channels.alertmanager import Alertmanager
from backends.channels.base import ChannelSettings, MailServer, Notice, Outcome
from backends.channels.google_chat import GoogleChat
from backends.channels.http_post import HttpPost
from backends.channels.inward import is_allowed
from backends.channels.mail import Mail
from backends.channels.pagerduty import PagerDuty
from backends.channels.slack import Slack, message_of
from backends.channels.teams import Teams
from backends.channels.webhook import Webhook
from tests.receivers import HttpReceiver, MailReceiver

SECRET = b"a secret of the installation"
LOCAL = ChannelSettings(timeout_seconds=10, inward=(ip_network("127.0.0.0/8"),), webhook_secret=SECRET)
AT = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def notice(event: Any = "firing", alerts: int = 1, summary: str = "acme has used 80 % of its budget") -> Notice:
    listed = [
        {"id": f"alt_{number}", "tenant": "acme", "severity": "page", "summary": summary} for number in range(alerts)
    ]
    body = {"event": event, "rule": "money", "alerts": listed, "more": 0, "ids": [each["id"] for each in listed]}
    return Notice("ntf_1", event, body, AT)


@pytest.fixture
async def http() -> AsyncIterator[HttpPost]:
    post = HttpPost(LOCAL)
    yield post
    await post.close()


async def test_a_webhook_is_signed_over_the_bytes_that_arrive(http: HttpPost) -> None:
    async with HttpReceiver() as receiver:
        assert await Webhook(http, LOCAL).send(notice(), receiver.url) == Outcome()
    (call,) = receiver.calls
    wanted = "sha256=" + hmac.new(SECRET, call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-tollkeeper-signature"] == wanted
    assert call.headers["x-tollkeeper-event-id"] == call.json["id"] == "ntf_1"
    assert call.json["alerts"][0]["summary"] == "acme has used 80 % of its budget" and "ids" not in call.json


async def test_slack_gets_a_text_and_a_section(http: HttpPost) -> None:
    async with HttpReceiver() as receiver:
        assert (await Slack(http).send(notice(alerts=2), receiver.url)).is_delivered
    (call,) = receiver.calls
    assert call.json["text"] == "Alert: 2 of rule money"
    assert call.json["blocks"][0]["text"]["text"].count("acme has used 80 %") == 2
    assert call.headers["host"] == receiver.url.split("/")[2]


def test_what_slack_would_read_as_markup_is_escaped() -> None:
    assert "<!channel>" not in json.dumps(message_of(notice(summary="<!channel> & more")))


async def test_pagerduty_opens_and_closes_the_same_incident(http: HttpPost) -> None:
    async with HttpReceiver(statuses=[202]) as receiver:
        sender = PagerDuty(http, ChannelSettings(pagerduty_url=receiver.url))
        for event in ("firing", "resolved"):
            assert (await sender.send(notice(event), "k" * 32)).is_delivered
    opened, closed = (call.json for call in receiver.calls)
    assert (opened["event_action"], closed["event_action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == closed["dedup_key"] == "alt_0"
    assert opened["payload"]["severity"] == "critical" and opened["routing_key"] == "k" * 32


WHOLE: dict[str, Any] = {
    "id": "alt_0",
    "kind": "slo_burn",
    "rule": "promises",
    "fingerprint": "chat",
    "tenant": "acme",
    "severity": "page",
    "title": "SLO chat: error budget burns at 14.4x",
    "summary": "SLO chat burns its error budget",
    "condition": "burns at 14.4x or faster",
    "value": "430x",
    "bound": "14.4x",
    "cause": "Target m1 answered 500",
    "owner": "platform team",
    "affected": [{"tenant": "acme", "requests": 12}],
    "opened_at": "2026-11-02T11:59:00+00:00",
    "link": "http://dash/incident?alert=alt_0",
    "requests_link": "http://dash/requests?q=status",
    "runbook": "docs/runbooks/slo-burn.md",
}
LINES = [
    "page [acme]: SLO chat burns its error budget",
    "Condition: burns at 14.4x or faster",
    "Value: 430x (bound 14.4x)",
    "Since: 2026-11-02T11:59:00+00:00",
    "Affected: acme (12 requests)",
    "Cause: Target m1 answered 500",
    "Owner: platform team",
    "Incident: http://dash/incident?alert=alt_0",
    "Requests: http://dash/requests?q=status",
    "Runbook: docs/runbooks/slo-burn.md",
]


def whole(event: Any = "firing", reason: str = "opened", **changed: object) -> Notice:
    return Notice(
        "ntf_1", event, {"event": event, "reason": reason, "rule": "promises", "alerts": [WHOLE | changed]}, AT
    )


async def test_teams_gets_a_card_with_every_line_and_a_button_to_the_incident(http: HttpPost) -> None:
    async with HttpReceiver(statuses=[202]) as receiver:
        assert await Teams(http).send(whole(), receiver.url) == Outcome()
        assert await Teams(http).send(notice(alerts=2), receiver.url) == Outcome()
    one, several = (call.json["attachments"][0]["content"] for call in receiver.calls)
    assert receiver.calls[0].json["type"] == "message" and one["type"] == "AdaptiveCard"
    assert [block["text"] for block in one["body"]] == [f"Alert: {WHOLE['title']}", "\n\n".join(LINES)]
    assert one["actions"] == [{"type": "Action.OpenUrl", "title": "Open incident", "url": WHOLE["link"]}]
    assert several["body"][0]["text"] == "Alert: 2 of rule money" and several["actions"] == []


async def test_google_chat_gets_a_title_and_lines_within_its_limit(http: HttpPost) -> None:
    async with HttpReceiver() as receiver:
        assert await GoogleChat(http).send(whole("firing", "escalated"), receiver.url) == Outcome()
        assert await GoogleChat(http).send(notice(alerts=50, summary="x" * 500), receiver.url) == Outcome()
    told, long = (call.json["text"] for call in receiver.calls)
    assert told.splitlines() == [f"*More severe: {WHOLE['title']}*", *LINES]
    assert len(long) <= 4_096


@pytest.mark.parametrize("path", ["", "/", "/api/v2/alerts"])
async def test_alertmanager_knows_an_alert_again_and_hears_of_its_rise_and_its_end(http: HttpPost, path: str) -> None:
    async with HttpReceiver() as receiver:
        base = f"http://127.0.0.1:{receiver.port}"
        for sent in (whole(severity="ticket"), whole("firing", "escalated"), whole("resolved", "resolved")):
            assert await Alertmanager(http).send(sent, base + path) == Outcome()
    assert {call.path for call in receiver.calls} == {"/api/v2/alerts"}
    lasting = [
        {each["labels"]["severity"] for each in call.json if each["endsAt"] > AT.isoformat()} for call in receiver.calls
    ]
    assert lasting == [{"ticket"}, {"page"}, set()], "the severity that it no longer has ends"
    labels = [[each["labels"] for each in call.json] for call in receiver.calls]
    assert labels[0] == labels[1] == labels[2], "labels are what Alertmanager knows an alert by"
    (page,) = [each for each in receiver.calls[1].json if each["labels"]["severity"] == "page"]
    assert page["labels"]["alertname"] == "tollkeeper_slo_burn" and page["labels"]["tenant"] == "acme"
    assert page["annotations"]["cause"] == WHOLE["cause"] and page["annotations"]["affected"] == "acme (12 requests)"
    assert page["generatorURL"] == WHOLE["link"] and page["startsAt"] == WHOLE["opened_at"]


async def test_a_test_of_alertmanager_ends_by_itself(http: HttpPost) -> None:
    async with HttpReceiver() as receiver:
        await Alertmanager(http).send(Notice("ntf_1", "test", {"alerts": []}, AT), receiver.url.rsplit("/", 1)[0])
    (sent,) = receiver.calls[0].json
    assert sent["labels"]["severity"] == "info" and sent["endsAt"] == "2026-11-02T12:05:00+00:00"


@pytest.mark.parametrize(
    ("status", "fault", "is_final"),
    [
        (302, "answered 302, and redirects are not followed", True),
        (404, "answered 404", True),
        (408, "answered 408", False),
        (429, "answered 429", False),
        (500, "answered 500", False),
        (503, "answered 503", False),
    ],
)
async def test_a_receiver_that_says_no_is_asked_again_only_where_that_may_help(
    http: HttpPost, status: int, fault: str, is_final: bool
) -> None:
    async with HttpReceiver(statuses=[status], location="http://127.0.0.1:9/") as receiver:
        outcome = await Slack(http).send(notice(), receiver.url)
    assert outcome == Outcome(fault, is_final=is_final)
    assert len(receiver.calls) == 1


async def test_a_hanging_receiver_is_left_after_the_bound_and_may_have_it() -> None:
    settings = ChannelSettings(timeout_seconds=0.5, inward=LOCAL.inward)
    http = HttpPost(settings)
    async with HttpReceiver(statuses=[0]) as receiver:
        outcome = await Slack(http).send(notice(), receiver.url)
        await http.close()
    assert outcome == Outcome("did not answer within 0.5 seconds", may_have_arrived=True)


async def test_a_receiver_that_breaks_off_may_have_it_and_one_that_is_away_has_not(http: HttpPost) -> None:
    async with HttpReceiver(statuses=[-1]) as receiver:
        outcome = await Slack(http).send(notice(), receiver.url)
    assert outcome.may_have_arrived and outcome.fault == "broke off (RemoteProtocolError)"
    assert await Slack(http).send(notice(), receiver.url) == Outcome("could not be called (ConnectError)")


async def test_an_inward_address_is_not_called_unless_the_operator_allows_it() -> None:
    http = HttpPost(ChannelSettings())
    async with HttpReceiver() as receiver:
        outcome = await Slack(http).send(notice(), receiver.url)
        by_name = await Slack(http).send(notice(), receiver.url.replace("127.0.0.1", "localhost"))
    await http.close()
    assert receiver.calls == []
    assert outcome.is_final and "TOLLKEEPER_ALERTS_INWARD" in outcome.fault and by_name.is_final
    assert "secret" not in outcome.fault, "a URL's path may be a secret"


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        *((inward, False) for inward in ("127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "0.0.0.0")),
        *((inward, False) for inward in ("::1", "fe80::1", "fd00::1", "::ffff:10.0.0.1", "224.0.0.1", "100.64.0.1")),
        ("64:ff9b::808:808", True),  # 8.8.8.8, translated
        *((inward, False) for inward in ("64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:a9fe:a9fe::", "::127.0.0.1")),
        *((inward, False) for inward in ("::ffff:0:7f00:1", "fec0::1", "168.63.129.16", "192.0.0.192", "192.88.99.1")),
    ],
)
def test_only_public_addresses_are_outward(address: str, is_public: bool) -> None:
    assert is_allowed(ip_address(address), ()) is is_public
    mapped = ip_address(address)
    own = (ip_network(f"{address}/{mapped.max_prefixlen}"),)
    assert is_allowed(mapped, own) or address.startswith(("::ffff:10", "64:ff9b::", "2002:"))  # these stand for IPv4's


async def test_mail_is_handed_over_under_one_message_id() -> None:
    async with MailReceiver() as receiver:
        sender = Mail(MailServer("127.0.0.1", receiver.port, sender="tk@example.com", has_tls=False), 10)
        assert await sender.send(notice("resolved"), "ops@example.com") == Outcome()
    ((recipient, message),) = receiver.mails
    assert recipient == "ops@example.com"
    assert "Subject: Resolved: acme has used 80 % of its budget" in message
    assert "Message-ID: <ntf_1@tollkeeper>" in message and "Date: Mon, 02 Nov 2026 12:00:00" in message


@pytest.mark.parametrize(("status", "is_final"), [(550, True), (450, False)])
async def test_a_recipient_that_is_refused_is_named_and_one_that_is_greylisted_is_tried_again(
    status: int, is_final: bool
) -> None:
    async with MailReceiver(refuses=status) as receiver:
        sender = Mail(MailServer("127.0.0.1", receiver.port, has_tls=False), 10)
        outcome = await sender.send(notice(), "ops@example.com")
    assert outcome == Outcome("the mail server refuses the recipient", is_final=is_final)


async def test_mail_that_was_taken_is_not_sent_again_whatever_the_server_says_to_goodbye() -> None:
    async with MailReceiver(goodbye="421 too busy") as receiver:
        sender = Mail(MailServer("127.0.0.1", receiver.port, has_tls=False), 10)
        assert await sender.send(notice(), "ops@example.com") == Outcome()
    assert len(receiver.mails) == 1


async def test_mail_that_cannot_be_sent_says_why() -> None:
    assert "TOLLKEEPER_ALERTS_SMTP_HOST" in (await Mail(MailServer(), 5).send(notice(), "ops@example.com")).fault
    async with MailReceiver(is_silent=True) as receiver:
        hanging = Mail(MailServer("127.0.0.1", receiver.port, has_tls=False), 0.5)
        outcome = await hanging.send(notice(), "ops@example.com")
        assert outcome == Outcome("the mail server did not answer within 0.5 seconds")
    away = await Mail(MailServer("127.0.0.1", receiver.port, has_tls=False), 5).send(notice(), "ops@example.com")
    assert away == Outcome("the mail server could not be used (ConnectionRefusedError)")


async def test_a_line_break_in_a_name_cannot_add_a_header_to_mail() -> None:
    async with MailReceiver() as receiver:
        sender = Mail(MailServer("127.0.0.1", receiver.port, has_tls=False), 10)
        assert (await sender.send(notice(summary="x\r\nBcc: all@example.com"), "ops@example.com")).is_delivered
    head = receiver.mails[0][1].split("\r\n\r\n")[0]
    assert "\r\nBcc:" not in head
