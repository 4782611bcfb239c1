"""Links in notifications: full dashboard URLs, and the runbook of the rule's kind."""

from collections.abc import Mapping
from dataclasses import dataclass

_LINKS = ("link", "requests_link")


@dataclass(frozen=True, slots=True)
class Links:
    """The dashboard's public URL and the URL of runbooks; an empty `runbooks` means the files in docs/."""

    dashboard: str = "http://127.0.0.1:8501"
    runbooks: str = ""


def runbook_of(kind: str, links: Links) -> str:
    """Return the runbook of a kind of rule: a URL, or the path of the file in docs/."""
    name = f"{kind.replace('_', '-')}.md"
    return f"{links.runbooks.rstrip('/')}/{name}" if links.runbooks else f"docs/runbooks/{name}"


def with_links(body: Mapping[str, object], links: Links) -> dict[str, object]:
    """Return a notification's body with full URLs, including those of its alerts."""
    if body.get("link"):
        body = {**body, "link": f"{links.dashboard.rstrip('/')}{body['link']}"}
    alerts = body.get("alerts")
    if not isinstance(alerts, list):
        return dict(body)
    return {**body, "alerts": [_linked(alert, links) if isinstance(alert, Mapping) else alert for alert in alerts]}


def _linked(alert: Mapping[str, object], links: Links) -> dict[str, object]:
    base = links.dashboard.rstrip("/")
    whole = {name: f"{base}{alert[name]}" for name in _LINKS if alert.get(name)}
    return {**alert, **whole, "runbook": alert.get("runbook") or runbook_of(str(alert.get("kind")), links)}
