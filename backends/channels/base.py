"""A notification, the result of sending it, and the settings of all senders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Protocol

from contracts.rules.alerts import Event

PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification. `id` stays the same over all attempts; `body` is the result of `alert_log.notice_body`."""

    id: str
    event: Event
    body: Mapping[str, object]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt: an empty `fault` is success.

    `may_have_arrived`: the receiver got all of it and did not confirm it. `is_final`: it refused, and another attempt
    would be the same.
    """

    fault: str = ""
    may_have_arrived: bool = False
    is_final: bool = False

    @property
    def is_delivered(self) -> bool:
        """Return whether the receiver has it."""
        return not self.fault


class Sender(Protocol):
    """Sends notices of one kind, in one attempt with a time limit."""

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Send a notice to an address of this sender's kind. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class MailServer:
    """The mail server. An empty `host`: mail cannot be sent."""

    host: str = ""
    port: int = 587
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = "tollkeeper@localhost"
    has_tls: bool = True  # STARTTLS


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Settings of senders: bounds, the operator's exceptions, secrets."""

    timeout_seconds: float = 5.0
    inward: tuple[IPv4Network | IPv6Network, ...] = ()  # non-public networks that may be called
    webhook_secret: bytes = field(default=b"", repr=False)
    pagerduty_url: str = PAGERDUTY_URL
    mail: MailServer = MailServer()
