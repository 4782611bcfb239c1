"""Google Chat's incoming webhooks: https://developers.google.com/workspace/chat/quickstart/webhooks."""

import json

from backends.channels.base import Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import lines_of, title_of

_MAX_TEXT = 4_000  # Chat takes 4,096 characters


class GoogleChat:
    """Posts a message of plain text, in which URLs become links."""

    def __init__(self, http: HttpPost) -> None:
        self._http = http

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the message. Chat cannot detect duplicates, so a message that may have arrived is not sent again."""
        return await self._http.post(address, json.dumps(message_of(notice)).encode(), {})


def message_of(notice: Notice) -> dict[str, object]:
    """Return the request body."""
    return {"text": "\n".join([f"*{title_of(notice)}*", *lines_of(notice)])[:_MAX_TEXT]}
