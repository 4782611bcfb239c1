"""A client of the soak: one kept connection, an answer read whole, in part or not at all."""

import asyncio
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Told:
    """An answer: its status, whether it is a stream, its body."""

    status: int
    is_stream: bool
    body: bytes


class Caller:
    """One connection. Raises ConnectionError, IncompleteReadError or TimeoutError if it breaks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_usable = True

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Connect to a gateway on this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    async def ask(self, data: bytes, pieces: int | None = None) -> Told | None:
        """Send a request and read its answer; after that many pieces of a stream, or before any for 0, leave."""
        self._writer.write(data)
        await self._writer.drain()
        if pieces == 0:
            await self.close()
            return None
        status, headers = await self._head()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                body += (await self._reader.readexactly(size + 2))[:-2]
                if pieces is not None and (pieces := pieces - 1) == 0:
                    await self.close()
                    return None
            await self._reader.readexactly(2)
        else:
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            await self.close()
        return Told(status, headers.get("content-type", "").startswith("text/event-stream"), body)

    async def close(self) -> None:
        """Leave."""
        self.is_usable = False
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # the gateway was first

    async def _head(self) -> tuple[int, dict[str, str]]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        return int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in lines if line)
