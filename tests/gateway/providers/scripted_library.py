"""A library of providers that plays a script, for the host and the gateway without LiteLLM."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from backends.providers.base import CHAT, Account, Order

Step = bytes | float | Exception | str
STALL = "stall"


def chunk(text: str = "", finish: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "model": "played-1", "choices": [choice]}).encode() + b"\n\n"


def whole(text: str = "Hi") -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return json.dumps({"id": "x", "model": "played-1", "choices": [choice], "usage": usage}).encode()


class ScriptedLibrary:
    """Plays bytes, delays in seconds, "stall", and exceptions for every order."""

    version = "0"
    operations: tuple[str, ...] = (CHAT,)

    def __init__(self) -> None:
        self.script: tuple[Step, ...] = (whole(),)
        self.usage = b""
        self.orders: list[Order] = []
        self.given = 0  # pieces taken from it
        self.ended: list[str] = []

    async def answer(self, order: Order, account: Account) -> AsyncGenerator[bytes, None]:
        self.orders.append(order)
        account.usage = self.usage
        how = "complete"
        try:
            for step in self.script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    self.given += 1
                    yield step
                else:
                    await asyncio.sleep(3600 if step == STALL else float(step))
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self.ended.append(how)

    async def close(self) -> None:
        """Nothing to close."""


def fields_of(library: ScriptedLibrary) -> dict[str, Any]:
    """What the last order asked for."""
    return dict(library.orders[-1].fields)
