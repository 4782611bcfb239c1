"""One address before several collectors: each connection goes to one of them, and some answers get lost on the way."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Final, Self

_CHUNK_BYTES: Final = 1 << 16


class Balancer:
    """A TCP proxy on this machine. `lost_answers` is the share of answers after which the sender hears nothing."""

    def __init__(self, ports: Sequence[int], source: random.Random, lost_answers: float) -> None:
        self.lost = 0
        self._ports = ports
        self._source = source
        self._lost_answers = lost_answers
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._serving:
            connection.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            answers, there = await self._connect()
            forth = asyncio.create_task(_pump(reader, there))
            while answer := await answers.read(_CHUNK_BYTES):
                if self._source.random() < self._lost_answers:
                    self.lost += 1
                    break
                writer.write(answer)
                await writer.drain()
            forth.cancel()
        except OSError:
            pass  # the sender finds its connection closed, and sends again
        finally:
            for end in (writer, there):
                if end is not None:
                    end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ports = list(self._ports)
        self._source.shuffle(ports)
        for port in ports[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return await asyncio.open_connection("127.0.0.1", ports[-1])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
