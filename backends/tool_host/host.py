"""Offers programs as MCP servers over HTTP: `POST /NAME`, as in MCP's streamable HTTP transport.

A server with a handshake gets a process per session, so that callers are isolated. A server of the stateless revision
has one process for all.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from backends.mcp.reply import MAX_MESSAGES, MAX_STREAM_BYTES
from backends.tool_host.process import MAX_MESSAGE_BYTES, NotStarted, ProcessEnded, StdioProcess
from backends.tool_host.programs import Program

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0  # between searches for unused processes
_PROBE_SECONDS: Final = 8.0  # timeout of the probe whether a server speaks the stateless revision
_AGAIN_SECONDS: Final = 1.0  # minimum time between two starts of a program that failed
_MAX_NOTIFICATIONS: Final = 256  # buffered per request
# Limits on one request's notifications that are passed on. A gateway closes the connection at twice as much, and a
# program that floods would then fail the next request.
_MAX_PASSED: Final = MAX_MESSAGES // 2
_MAX_PASSED_BYTES: Final = MAX_STREAM_BYTES // 2
_DISCOVER: Final = "server/discover"
_SERVER_ERROR: Final = -32000
_JSON: Final = b"application/json"

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Answered(Exception):
    """Ends a request with this response, instead of one by its server."""

    def __init__(self, status: int, body: bytes = b"", kind: bytes = b"text/plain") -> None:
        super().__init__()
        self.status, self.body, self.kind = status, body, kind


class ToolHost:
    """ASGI application. `directory` is the working directory of programs that set none."""

    def __init__(self, programs: Mapping[str, Program], directory: str) -> None:
        self._programs = programs
        self._directory = directory
        self._processes: dict[tuple[str, str], StdioProcess] = {}  # by server name, and session or key
        self._failed_at: dict[str, float] = {}
        self._starting = {name: asyncio.Lock() for name in programs}
        self._sweeper = asyncio.create_task(self._sweep())

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except _Answered as answer:
            await _send(send, answer.status, answer.kind, answer.body)

    async def close(self) -> None:
        """Stop all processes."""
        self._sweeper.cancel()
        await asyncio.gather(self._sweeper, return_exceptions=True)
        processes, self._processes = list(self._processes.values()), {}
        await asyncio.gather(*(process.stop() for process in processes))

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        name = scope["path"].strip("/")
        if name not in self._programs:
            raise _Answered(404, b"there is no such server")
        if scope["method"] != "POST":
            raise _Answered(405, b"only POST is answered")
        headers = dict(scope["headers"])
        session, key = headers.get(b"mcp-session-id", b"").decode("latin-1"), _key_in(headers)
        if key and not self._programs[name].key_variable:
            raise _Answered(403, b"the server's program takes no key: set key_variable")
        message = _read(await _body(receive))
        method = _decode(message["method"]) if "method" in message else ""
        try:
            session, process = await self._process_for(name, session, key, is_first=method == "initialize")
            if "id" not in message or not method:
                if method:
                    await process.notify(message)
                raise _Answered(202)
            await self._ask(name, session, process, message, method, receive, send)
        except NotStarted as error:
            fault = {"code": _SERVER_ERROR, "message": str(error)}
            answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": fault}
            raise _Answered(503, _encode(answer), _JSON) from error
        except ProcessEnded as error:
            _log.warning("MCP server ended during a request", extra={"server": name, "reason": str(error)})
            raise _Answered(502, str(error).encode()) from error

    async def _process_for(self, name: str, session: str, key: str, *, is_first: bool) -> tuple[str, StdioProcess]:
        """Return the session and process of a request. Raises _Answered if the session does not exist."""
        if session and not is_first:
            process = self._processes.get((name, session))
            if process is None or process.is_over:
                raise _Answered(404, b"there is no such session")
            return session, process
        session = secrets.token_urlsafe(24) if is_first else f" {key}"  # no header value can begin with a blank
        async with self._starting[name]:
            process = self._processes.get((name, session))
            if process is None or process.is_over:
                process = await self._start(name, session, key)
        return session, process

    async def _start(self, name: str, session: str, key: str) -> StdioProcess:
        if time.monotonic() - self._failed_at.get(name, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            raise NotStarted(f"the program of MCP server {name!r} has just failed; it is started again later")
        program = self._programs[name]
        await self._make_room(name, program.max_processes)
        try:
            process = await StdioProcess.start(name, program, key, self._directory)
        except NotStarted:
            self._failed_at[name] = time.monotonic()
            raise
        self._processes[name, session] = process
        return process

    async def _make_room(self, name: str, most: int) -> None:
        """Stop the process that has been idle longest, if the maximum number of processes runs."""
        own = {place: one for place, one in self._processes.items() if place[0] == name}
        if len(own) < most:
            return
        idle = [place for place, one in own.items() if not one.is_busy]
        if not idle:
            raise NotStarted(f"MCP server {name!r} has {most} processes at work, the most it may have (max_processes)")
        oldest = min(idle, key=lambda place: own[place].used_at)
        await self._processes.pop(oldest).stop()

    async def _ask(
        self,
        name: str,
        session: str,
        process: StdioProcess,
        message: dict[str, msgspec.Raw],
        method: str,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send a request to its server and return the answer: as JSON, or as events if there are notifications."""
        said: asyncio.Queue[bytes] = asyncio.Queue(_MAX_NOTIFICATIONS)
        passed, passed_bytes = 0, 0

        def note(notification: bytes) -> None:
            nonlocal passed, passed_bytes
            if said.full() or passed == _MAX_PASSED or passed_bytes + len(notification) > _MAX_PASSED_BYTES:
                return
            passed, passed_bytes = passed + 1, passed_bytes + len(notification)
            said.put_nowait(notification)

        asked = asyncio.ensure_future(self._asked(name, session, process, message, method, note))
        gone = asyncio.ensure_future(_disconnected(receive))
        more = asyncio.ensure_future(said.get())
        is_streamed = False
        try:
            while not asked.done():
                await asyncio.wait((asked, gone, more), return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not asked.done():
                    return
                if more.done():
                    if not is_streamed:
                        is_streamed = True
                        await _begin(send, 200, b"text/event-stream", session)
                    await _send_event(send, more.result())
                    more = asyncio.ensure_future(said.get())
            if not is_streamed:
                await _send(send, 200, _JSON, asked.result(), session)
                return
            while not said.empty():
                await _send_event(send, said.get_nowait())
            if asked.exception() is None:
                await _send_event(send, asked.result())
            await send({"type": "http.response.body", "body": b""})
        finally:
            for task in (asked, gone, more):
                task.cancel()
            await asyncio.gather(asked, gone, more, return_exceptions=True)

    async def _asked(
        self,
        name: str,
        session: str,
        process: StdioProcess,
        message: dict[str, msgspec.Raw],
        method: str,
        note: Callable[[bytes], None],
    ) -> bytes:
        """Return a server's answer. Servers with a handshake are detected by their reply to the stateless probe."""
        try:
            if method != _DISCOVER:
                answer = await process.ask(message, note)
                if method == "initialize" and "error" in _fields(answer):
                    await self._forget(name, session)  # the session was not opened
                return answer
            async with asyncio.timeout(_PROBE_SECONDS):
                answer = await process.ask(message, note)
            if "error" in _fields(answer):
                raise _Answered(404, b"the server speaks an earlier revision")
            return answer
        except TimeoutError:
            await self._forget(name, session)
            raise _Answered(404, b"the server speaks an earlier revision") from None
        except _Answered:
            await self._forget(name, session)
            raise
        except ProcessEnded:
            await self._forget(name, session)
            if method == _DISCOVER:  # a server that exits at the probe has a handshake
                raise _Answered(404, b"the server speaks an earlier revision") from None
            if method == "initialize":
                self._failed_at[name] = time.monotonic()
            raise

    async def _forget(self, name: str, session: str) -> None:
        process = self._processes.pop((name, session), None)
        if process is not None:
            await process.stop()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for place, process in list(self._processes.items()):
                is_idle = not process.is_busy and now - process.used_at > self._programs[place[0]].idle_seconds
                if is_idle or process.is_over:
                    self._processes.pop(place, None)
                    await process.stop()


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise _Answered(400)
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > MAX_MESSAGE_BYTES:
            raise _Answered(413, b"the message is too long")
        if not event.get("more_body"):
            return b"".join(parts)


def _read(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        message = _fields(body)
        if "method" in message and not isinstance(_decode(message["method"]), str):
            raise _Answered(400, b"the method is no text")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _Answered(400, b"the body is no JSON-RPC message") from None
    return message


def _key_in(headers: Mapping[bytes, bytes]) -> str:
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return key if scheme.lower() == "bearer" else ""


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send, status: int, kind: bytes, session: str = "", length: int | None = None) -> None:
    headers = [(b"content-type", kind)]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    if session and not session.startswith(" "):
        headers.append((b"mcp-session-id", session.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send(send: Send, status: int, kind: bytes, body: bytes, session: str = "") -> None:
    await _begin(send, status, kind, session, len(body))
    await send({"type": "http.response.body", "body": body})


async def _send_event(send: Send, message: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % message, "more_body": True})
