"""Clients that go on asking the one that dies, and keep what they were answered."""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Final

from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.fleet import chat_body, key_of

_AGAIN_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.05
_MAX_TOKENS: Final = 24


@dataclass(slots=True)
class Counts:
    """What the clients know: the output tokens of each whole answer by request id, and how long whole answers took."""

    tokens: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    seconds: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # when each of `seconds` ended, on the monotonic clock


class Clients:
    """Some clients of one gateway, each asking again when it was answered; half of the answers are streams."""

    def __init__(self, port: int, clients: int, source: random.Random, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self.counts = Counts()
        self._port = port
        self._clients = clients
        self._source = source
        self._pause_seconds = pause_seconds
        self._is_over = False

    async def run(self) -> None:
        """Ask until `end` is called."""
        await asyncio.gather(*(self._ask_again_and_again() for _ in range(self._clients)))

    def end(self) -> None:
        """Start nothing more."""
        self._is_over = True

    async def _ask_again_and_again(self) -> None:
        connection: Connection | None = None
        while not self._is_over:
            answer = Answer()
            tokens, is_streamed = self._source.randint(1, _MAX_TOKENS), self._source.random() < 0.5
            body = chat_body(20, tokens, gap_ms=2.0, streamed=is_streamed)
            began = time.monotonic()
            try:
                connection = connection or await Connection.open(self._port)
                await connection.ask(chat_request(key_of(0), body), answer)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                if connection is not None:
                    with contextlib.suppress(OSError):
                        connection.close()
                connection = None
            if answer.is_whole and answer.status == 200:
                self._note(answer, is_streamed, began)
                await asyncio.sleep(self._pause_seconds)
            else:
                self.counts.failures += 1
                await asyncio.sleep(_AGAIN_SECONDS)
        if connection is not None:
            connection.close()

    def _note(self, answer: Answer, is_streamed: bool, began: float) -> None:
        ended = time.monotonic()
        self.counts.seconds.append(ended - began)
        self.counts.at.append(ended)
        self.counts.tokens[answer.request_id] = (
            answer.tokens if is_streamed else int(answer.json["usage"]["completion_tokens"])
        )
