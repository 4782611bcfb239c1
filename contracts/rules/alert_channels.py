"""Alert channels: their kinds, how the kinds differ, and the checks of an address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from contracts.errors import InvalidRequest

ChannelKind = Literal["webhook", "slack", "email", "pagerduty", "teams", "google_chat", "alertmanager"]
ReportEvery = Literal["", "day", "week", "month"]

CHANNEL_KINDS: Final[tuple[ChannelKind, ...]] = get_args(ChannelKind)

_EMAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
_ROUTING_KEY: Final = re.compile(r"[A-Za-z0-9]{32}")
_MAX_ADDRESS: Final = 500
_WANTED: Final = {
    "url": "an http:// or https:// URL with a host, without user and password",
    "email": "one e-mail address",
    "routing_key": "an integration's routing key, 32 letters or digits",
}


@dataclass(frozen=True, slots=True)
class ChannelTraits:
    """How a kind of channel differs from others. `backends/channels/table.py` has its sender."""

    label: str  # for people
    address: Literal["url", "email", "routing_key"] = "url"
    takes_reports: bool = True
    is_repeatable: bool = False  # its receiver recognises a notification by its id, so that it may be sent twice
    has_notice_per_alert: bool = False  # a notification is about one alert instead of several
    hosts: tuple[str, ...] = ()  # of its URLs; one that starts with a dot is the end of a host name


TRAITS: Final[Mapping[ChannelKind, ChannelTraits]] = {
    "webhook": ChannelTraits("Webhook", is_repeatable=True),
    "slack": ChannelTraits("Slack", hosts=("hooks.slack.com",)),
    "email": ChannelTraits("E-mail", address="email"),
    "pagerduty": ChannelTraits(  # it opens and closes an incident for each alert
        "PagerDuty", address="routing_key", takes_reports=False, is_repeatable=True, has_notice_per_alert=True
    ),
    "teams": ChannelTraits(
        "Microsoft Teams", hosts=(".webhook.office.com", ".logic.azure.com", ".api.powerplatform.com")
    ),
    "google_chat": ChannelTraits("Google Chat", hosts=("chat.googleapis.com",)),
    "alertmanager": ChannelTraits("Alertmanager", takes_reports=False, is_repeatable=True),
}


def traits_of(kind: str) -> ChannelTraits:
    """Return the traits of a kind; for an unknown kind, those of a URL to which nothing is sent twice."""
    return next((traits for name, traits in TRAITS.items() if name == kind), ChannelTraits(kind))


def kind_of_address(address: str) -> ChannelKind:
    """Return the kind of alert channel that an address belongs to."""
    if _ROUTING_KEY.fullmatch(address):
        return "pagerduty"
    if "://" not in address:
        return "email"
    host = urlsplit(address).hostname or ""
    for kind, traits in TRAITS.items():
        if any(host == end or (end[0] == "." and host.endswith(end)) for end in traits.hosts):
            return kind
    return "webhook"


def check_channel(kind: str, address: str) -> ChannelKind:
    """Return a channel's kind if its address fits it. Raises InvalidRequest, which does not repeat the address."""
    known = next((name for name in CHANNEL_KINDS if name == kind), None)
    if known is None:
        raise InvalidRequest(f"kind {kind!r} is unknown; known: {', '.join(CHANNEL_KINDS)}", param="kind")
    wanted = TRAITS[known].address
    if wanted == "email":
        fits = _EMAIL.fullmatch(address) is not None
    elif wanted == "routing_key":
        fits = _ROUTING_KEY.fullmatch(address) is not None
    else:
        fits = is_http_url(address)
    if not fits or len(address) > _MAX_ADDRESS:
        raise InvalidRequest(f"the address of a channel of kind {kind} is {_WANTED[wanted]}", param="address")
    return known


def check_report(kind: str, report: str) -> None:
    """Raise InvalidRequest if cost reports cannot be sent to a channel of this kind."""
    if report and not traits_of(kind).takes_reports:
        *others, last = (name for name, traits in TRAITS.items() if traits.takes_reports)
        raise InvalidRequest(
            f"a channel of kind {kind} takes alerts, not reports; use one of kind {', '.join(others)} or {last}",
            param="report",
        )


def shown_address(kind: str, address: str) -> str:
    """Return what may be shown of an address: a URL's path and a routing key are secrets."""
    form = traits_of(kind).address
    if form == "email":
        return address
    if form == "routing_key":
        return f"...{address[-4:]}"
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/..."


def is_http_url(address: str) -> bool:
    """Return whether a text is an HTTP URL with a host, without credentials."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        return False
    return usable and parts.username is None and parts.password is None and not re.search(r"[\x00-\x20\x7f]", address)
