"""Calls to webhooks: the client is loaded at the first call, because few gateways use it."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backends.channels.question import HttpAnswer

if TYPE_CHECKING:
    from backends.channels.http_question import HttpQuestion
    from backends.channels.inward import Network

_SETTING = "TOLLKEEPER_GUARDRAILS_INWARD"


class LazyQuestions:
    """See `backends.channels.question.Questions`. Used from one event loop."""

    def __init__(self, inward: "Sequence[Network]") -> None:
        self._inward = inward
        self._asked: HttpQuestion | None = None

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        """Send one question. See `backends.channels.question.Questions.ask`."""
        if self._asked is None:
            module = await asyncio.to_thread(importlib.import_module, "backends.channels.http_question")
            # Another request may have been here meanwhile.
            self._asked = self._asked or module.HttpQuestion(self._inward, _SETTING)
        return await self._asked.ask(url, body, headers, timeout_seconds, most_bytes)

    async def close(self) -> None:
        """Close the client, if it was created."""
        if self._asked is not None:
            await self._asked.close()
