"""Microsoft Teams' workflow webhooks: a message with one Adaptive Card.

https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
"""

import json

from backends.channels.base import Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import alerts_of, lines_of, title_of

_CARD = "application/vnd.microsoft.card.adaptive"
_MAX_TEXT = 20_000  # Teams takes 28 KB a message


class Teams:
    """Posts a card with the alert's lines and a button that opens the incident."""

    def __init__(self, http: HttpPost) -> None:
        self._http = http

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the message. Teams cannot detect duplicates, so a message that may have arrived is not sent again."""
        return await self._http.post(address, json.dumps(message_of(notice)).encode(), {})


def message_of(notice: Notice) -> dict[str, object]:
    """Return the request body."""
    title = {"type": "TextBlock", "text": title_of(notice), "weight": "Bolder", "size": "Medium", "wrap": True}
    text = "\n\n".join(lines_of(notice))[:_MAX_TEXT]
    links = [str(alert["link"]) for alert in alerts_of(notice) if alert.get("link")]
    card: dict[str, object] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, *([{"type": "TextBlock", "text": text, "wrap": True}] if text else [])],
        "actions": [{"type": "Action.OpenUrl", "title": "Open incident", "url": links[0]}] if len(links) == 1 else [],
    }
    return {"type": "message", "attachments": [{"contentType": _CARD, "content": card}]}
