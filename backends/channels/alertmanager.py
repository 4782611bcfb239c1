"""Prometheus Alertmanager's API v2: https://prometheus.io/docs/alerting/latest/alerts_api.

Escalation, quiet hours and inhibition are Alertmanager's: each of our alerts is one of its alerts, identified by its
labels.
"""

import json
from collections.abc import Mapping
from datetime import timedelta

from backends.channels.base import Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import affected_text, alerts_of

_PATH = "/api/v2/alerts"
# Alertmanager resolves alerts that are not repeated, unless they state their end; the real end is posted later.
_ENDS_AFTER = timedelta(days=30)


class Alertmanager:
    """Posts alerts; `address` is Alertmanager's URL, with or without the path of its API."""

    def __init__(self, http: HttpPost) -> None:
        self._http = http

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the notice's alerts."""
        url = address if address.endswith(_PATH) else f"{address.rstrip('/')}{_PATH}"
        return await self._http.post(url, json.dumps(alerts_for(notice)).encode(), {})


def alerts_for(notice: Notice) -> list[dict[str, object]]:
    """Return the notice's alerts in Alertmanager's format. A test is an alert that ends after five minutes."""
    if notice.event == "test":
        labels = {"alertname": "tollkeeper_test", "severity": "info", "service": "tollkeeper"}
        ends = (notice.created_at + timedelta(minutes=5)).isoformat()
        annotations = {"summary": "Test: this channel works"}
        return [{"labels": labels, "annotations": annotations, "endsAt": ends}]
    return [_alert(alert, notice, severity) for alert in alerts_of(notice) for severity in ("page", "ticket")]


def _alert(alert: Mapping[str, object], notice: Notice, severity: str) -> dict[str, object]:
    """Return an alert with one severity. Severity is a label, so the same alert with the other severity is stated as
    ended.
    """
    names = ("tenant", "team", "rule", "fingerprint", "owner")
    is_over = notice.event == "resolved" or alert.get("severity") != severity
    ends = notice.created_at if is_over else notice.created_at + _ENDS_AFTER
    noted = {name: alert.get(name) for name in ("summary", "condition", "value", "bound", "cause", "runbook")}
    return {
        "labels": {
            "alertname": f"tollkeeper_{alert.get('kind')}",
            "service": "tollkeeper",
            "severity": severity,
            "alert_id": str(alert.get("id")),
            **{name: str(alert[name]) for name in names if alert.get(name)},
        },
        "annotations": {
            **{name: str(value) for name, value in noted.items() if value},
            "affected": affected_text(alert),
        },
        "startsAt": str(alert.get("opened_at")),
        "endsAt": ends.isoformat(),
        "generatorURL": str(alert.get("link") or ""),
    }
