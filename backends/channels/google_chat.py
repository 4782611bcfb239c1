"""Google Chat's incoming webhooks: https://developers.google.com/workspace/chat/quickstart/webhooks."""

import json

from backends.channels.base import Notice, Outcome
from backends.channels.http_post import HttpPost
from backends.channels.words import lines_of, title_of

_MAX_TEXT = 4_000  # Chat takes 4,096 characters


class GoogleChat:
    """Posts a message of plain text; addresses in it are links."""

    def __init__(self, http: HttpPost) -> None:
        self._http = http

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the message. Chat does not know a message again, so one that may have arrived is not repeated."""
        return await self._http.post(address, json.dumps(message_of(notice)).encode(), {})


def message_of(notice: Notice) -> dict[str, object]:
    """Write the message."""
    return {"text": "\n".join([f"*{title_of(notice)}*", *lines_of(notice)])[:_MAX_TEXT]}
