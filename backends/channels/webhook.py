"""A webhook of the operator's or a tenant's own: the notice as JSON, signed."""

import json

from backends.channels.base import ChannelSettings, Notice, Outcome
from backends.channels.http_post import HttpPost
from contracts.rules.webhook_signature import EVENT_ID_HEADER, SIGNATURE_HEADER, signature_of


class Webhook:
    """Posts the notice with a signature by the installation's secret (`secrets/webhook_secret`), as for budgets'
    webhooks.
    """

    def __init__(self, http: HttpPost, settings: ChannelSettings) -> None:
        self._http = http
        self._secret = settings.webhook_secret

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Post the notification. The event id is the same in every attempt, so a receiver can drop duplicates."""
        facts = {"id": notice.id, **{name: value for name, value in notice.body.items() if name != "ids"}}
        body = json.dumps(facts, separators=(",", ":")).encode()
        headers = {EVENT_ID_HEADER: notice.id, SIGNATURE_HEADER: signature_of(body, self._secret)}
        return await self._http.post(address, body, headers)
