"""A notification in words, for receivers that show text to people."""

from collections.abc import Mapping, Sequence

from backends.channels.base import Notice

_BEGINNINGS = {
    "opened": "Alert",
    "firing": "Alert",
    "escalated": "More severe",
    "repeated": "Still open",
    "resolved": "Resolved",
    "test": "Test",
}
_MOST_TENANTS = 5


def title_of(notice: Notice) -> str:
    """Return one line: what happened, and to how many things."""
    if notice.event == "test":
        return "Test: this channel works"
    if notice.event == "report":
        return str(notice.body.get("title"))
    alerts = alerts_of(notice)
    beginning = _BEGINNINGS.get(str(notice.body.get("reason")), _BEGINNINGS[notice.event])
    if len(alerts) == 1:
        return f"{beginning}: {alerts[0].get('title') or alerts[0]['summary']}"
    return f"{beginning}: {len(alerts) + _more(notice)} of rule {notice.body.get('rule')}"


def lines_of(notice: Notice) -> list[str]:
    """Return the details of one alert, or a line for each of several and the number of further ones.

    For a report, return its lines.
    """
    lines = notice.body.get("lines")
    if notice.event == "report" and isinstance(lines, list):
        link = [f"Details: {notice.body['link']}"] if notice.body.get("link") else []
        return [*map(str, lines), *link]
    alerts = alerts_of(notice)
    if len(alerts) == 1:
        return details_of(alerts[0])
    listed = [_line(alert) for alert in alerts]
    return [*listed, f"... and {_more(notice)} more"] if _more(notice) else listed


def details_of(alert: Mapping[str, object]) -> list[str]:
    """Return the details of an alert, one per line: condition, value, bound, start, affected tenants, cause, links."""
    value, bound = alert.get("value"), alert.get("bound")
    found = f"{value} (bound {bound})" if value and bound else value
    named = (
        ("Condition", alert.get("condition")),
        ("Value", found),
        ("Since", alert.get("began_at") or alert.get("opened_at")),
        ("Affected", affected_text(alert)),
        ("Cause", alert.get("cause")),
        ("Owner", alert.get("owner")),
        ("Incident", alert.get("link")),
        ("Requests", alert.get("requests_link")),
        ("Runbook", alert.get("runbook")),
    )
    return [_line(alert), *(f"{name}: {said}" for name, said in named if said)]


def affected_text(alert: Mapping[str, object]) -> str:
    """Name the affected tenants with their failed requests; the alert's own tenant if nothing was counted."""
    affected = alert.get("affected")
    rows = [each for each in affected if isinstance(each, Mapping)] if isinstance(affected, list) else []
    if not rows:
        return str(alert.get("tenant") or "")
    named = ", ".join(f"{each.get('tenant')} ({each.get('requests')} requests)" for each in rows[:_MOST_TENANTS])
    return named if len(rows) <= _MOST_TENANTS else f"{named} and {len(rows) - _MOST_TENANTS} more tenants"


def alerts_of(notice: Notice) -> Sequence[Mapping[str, object]]:
    """Return the alerts that a notice lists."""
    alerts = notice.body.get("alerts")
    return [each for each in alerts if isinstance(each, Mapping)] if isinstance(alerts, list) else []


def _line(alert: Mapping[str, object]) -> str:
    tenant = f" [{alert['tenant']}]" if alert.get("tenant") else ""
    return f"{alert.get('severity')}{tenant}: {alert.get('summary')}"


def _more(notice: Notice) -> int:
    more = notice.body.get("more")
    return more if isinstance(more, int) else 0
