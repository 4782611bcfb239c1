"""Receivers of notices in this process: HTTP and SMTP servers that keep what they are sent, and misbehave when told."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Call:
    """One HTTP request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpReceiver:
    """Answers with `statuses`, one after the other, the last for good; -1 breaks off, 0 never answers.

    Each answer's body is `says`.
    """

    statuses: list[int] = field(default_factory=lambda: [200])
    calls: list[Call] = field(default_factory=list)
    location: str = ""
    says: bytes = b""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._open: set[asyncio.StreamWriter] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/T0/B0/secret"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                pairs = (line.partition(":") for line in lines if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.calls.append(Call(first.split()[1], headers, body))
                status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
                if status == 0:
                    await asyncio.Event().wait()
                if status == -1:
                    return
                location = f"location: {self.location}\r\n" if self.location else ""
                length = len(self.says)
                writer.write(f"HTTP/1.1 {status} X\r\n{location}content-length: {length}\r\n\r\n".encode() + self.says)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


@dataclass
class MailReceiver:
    """A mail server without TLS; `refuses` answers every recipient with that status, `is_silent` never answers."""

    refuses: int = 0
    is_silent: bool = False
    goodbye: str = "221 bye"
    mails: list[tuple[str, str]] = field(default_factory=list)  # recipient, message

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._open: set[asyncio.StreamWriter] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        recipient = ""

        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        try:
            if self.is_silent:
                await reader.read()
                return
            say("220 mail.test")
            while line := (await reader.readline()).decode().strip():
                verb = line[:4].upper()
                if verb == "RCPT":
                    recipient = line.partition("<")[2].rstrip(">")
                    say(f"{self.refuses} no" if self.refuses else "250 ok")
                elif verb == "DATA":
                    say("354 go on")
                    message = (await reader.readuntil(b"\r\n.\r\n")).decode()
                    self.mails.append((recipient, message))
                    say("250 kept")
                elif verb == "QUIT":
                    say(self.goodbye)
                    return
                else:
                    say("250 ok")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
