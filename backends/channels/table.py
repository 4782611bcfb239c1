"""The senders by kind of channel."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from backends.channels.alertmanager import Alertmanager
from backends.channels.base import ChannelSettings, Sender
from backends.channels.google_chat import GoogleChat
from backends.channels.http_post import HttpPost
from backends.channels.mail import Mail
from backends.channels.pagerduty import PagerDuty
from backends.channels.slack import Slack
from backends.channels.teams import Teams
from backends.channels.webhook import Webhook
from contracts.rules.alert_channels import ChannelKind


@asynccontextmanager
async def open_senders(settings: ChannelSettings) -> AsyncIterator[Mapping[ChannelKind, Sender]]:
    """Provide a sender for every kind; their connections are closed at the end."""
    http = HttpPost(settings)
    try:
        yield {
            "webhook": Webhook(http, settings),
            "slack": Slack(http),
            "pagerduty": PagerDuty(http, settings),
            "teams": Teams(http),
            "google_chat": GoogleChat(http),
            "alertmanager": Alertmanager(http),
            "email": Mail(settings.mail, settings.timeout_seconds),
        }
    finally:
        await http.close()
