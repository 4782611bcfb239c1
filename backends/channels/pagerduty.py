"""PagerDuty's Events API v2: https://developer.pagerduty.com/docs/send-alert-event."""

import json

from backends.channels.base import ChannelSettings, Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import alerts_of, title_of

_ACTIONS = {"firing": "trigger", "resolved": "resolve", "test": "trigger", "report": "trigger"}
_SEVERITIES = {"page": "critical", "ticket": "warning"}
_MAX_SUMMARY = 1_024


class PagerDuty:
    """Opens and resolves an incident for each alert, identified by `dedup_key`."""

    def __init__(self, http: HttpPost, settings: ChannelSettings) -> None:
        self._http = http
        self._url = settings.pagerduty_url

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Send an event; `address` is the integration's routing key."""
        return await self._http.post(self._url, json.dumps(event_of(notice, address)).encode(), {})


def event_of(notice: Notice, routing_key: str) -> dict[str, object]:
    """Return the request body. A test opens an incident of severity `info`, which must be resolved by hand."""
    alerts = alerts_of(notice)
    alert = alerts[0] if alerts else {}
    severity = "info" if notice.event == "test" else _SEVERITIES.get(str(alert.get("severity")), "warning")
    return {
        "routing_key": routing_key,
        "event_action": _ACTIONS[notice.event],
        "dedup_key": str(alert.get("id", notice.id)),
        "payload": {
            "summary": title_of(notice)[:_MAX_SUMMARY],
            "source": "tollkeeper",
            "severity": severity,
            "timestamp": notice.created_at.isoformat(),
            "custom_details": dict(alert),
        },
        "links": [
            {"href": str(alert[name]), "text": text}
            for name, text in (("link", "Incident"), ("requests_link", "Requests"))
            if str(alert.get(name, "")).startswith("http")
        ],
    }
