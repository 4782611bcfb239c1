"""A notice in words, for receivers that show text to people."""

from collections.abc import Mapping, Sequence

from backends.channels.base import Notice

_BEGINNINGS = {"firing": "Alert", "resolved": "Resolved", "test": "Test"}


def title_of(notice: Notice) -> str:
    """Give one line: what happened, and of how many things."""
    alerts = alerts_of(notice)
    beginning = _BEGINNINGS[notice.event]
    if notice.event == "test":
        return f"{beginning}: this channel works"
    if len(alerts) == 1:
        return f"{beginning}: {alerts[0]['summary']}"
    return f"{beginning}: {len(alerts) + _more(notice)} of rule {notice.body.get('rule')}"


def lines_of(notice: Notice) -> list[str]:
    """Give a line for each alert, and one that says how many more there are."""
    lines = [_line(alert) for alert in alerts_of(notice)]
    return [*lines, f"... and {_more(notice)} more"] if _more(notice) else lines


def alerts_of(notice: Notice) -> Sequence[Mapping[str, object]]:
    """Give the alerts that a notice lists."""
    alerts = notice.body.get("alerts")
    return [each for each in alerts if isinstance(each, Mapping)] if isinstance(alerts, list) else []


def _line(alert: Mapping[str, object]) -> str:
    tenant = f" [{alert['tenant']}]" if alert.get("tenant") else ""
    return f"{alert.get('severity')}{tenant}: {alert.get('summary')}"


def _more(notice: Notice) -> int:
    more = notice.body.get("more")
    return more if isinstance(more, int) else 0
