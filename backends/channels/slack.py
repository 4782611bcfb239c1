"""Slack's incoming webhooks: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks."""

import json

from backends.channels.base import Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import lines_of, title_of

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}  # the characters that Slack wants escaped
_MAX_SECTION = 2_900  # Slack takes 3,000 characters


class Slack:
    """Posts a message with a plain text for notifications, and the alerts below it."""

    def __init__(self, http: HttpPost) -> None:
        self._http = http

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the message. Slack cannot detect duplicates, so a message that may have arrived is not sent again."""
        return await self._http.post(address, json.dumps(message_of(notice)).encode(), {})


def message_of(notice: Notice) -> dict[str, object]:
    """Return the message: `text` and one section, with Slack markup escaped."""
    title = _escaped(title_of(notice))
    text = "\n".join([f"*{title}*", *(f"• {_escaped(line)}" for line in lines_of(notice))])[:_MAX_SECTION]
    return {"text": title, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
