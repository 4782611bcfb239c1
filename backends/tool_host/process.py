"""One running MCP server: JSON-RPC messages as lines over its stdin and stdout, bounded in both directions."""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from backends.llm.echoed_credentials import without_credentials
from backends.tool_host.programs import Program, environment_of
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 17 * 1024 * 1024  # the largest result that a gateway accepts, with its envelope
_MAX_BESIDE: Final = 10_000  # maximum number of other messages and lines between two answers
_LOGGED_LINES: Final = 100  # of a process's stderr, per minute
_LOGGED_BYTES: Final = 1000
_STOP_SECONDS: Final = 2.0  # after closing stdin, and after each signal
_METHOD_NOT_FOUND: Final = -32601
_PROGRESS: Final = "notifications/progress"

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class NotStarted(Exception):
    """The program could not be started."""


class ProcessEnded(Exception):
    """The process ended or was stopped while it had requests."""


class _Waiting(msgspec.Struct):
    answer: "asyncio.Future[bytes]"
    id: msgspec.Raw  # the gateway's id
    progress: msgspec.Raw | None  # the gateway's progress token
    on_notification: Callable[[bytes], None]


class StdioProcess:
    """A process and its unanswered requests. Ids and progress tokens are replaced by its own, so that none collide."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, secrets: tuple[str, ...]) -> None:
        self.name = name
        self.used_at = time.monotonic()
        self._process = process
        self._secrets = secrets
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._beside = 0
        self._writing = asyncio.Lock()
        self._end: ProcessEnded | None = None
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._log_errors())]
        self._telling: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, name: str, program: Program, key: str, directory: str) -> "StdioProcess":
        """Start a program. Raises NotStarted if that fails."""
        try:
            environment = environment_of(program, key)
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=program.directory or directory,
                start_new_session=True,  # so that its own children end with it
                limit=MAX_MESSAGE_BYTES,
            )
        except (OSError, ValueError, ConfigurationError) as error:
            reason = error.message if isinstance(error, ConfigurationError) else type(error).__name__
            _log.warning("MCP server cannot be started", extra={"server": name, "reason": str(error)})
            raise NotStarted(f"the program of MCP server {name!r} cannot be started: {reason}") from error
        secrets = tuple(filter(None, (key, *(environment[one] for one in program.environment))))
        return cls(name, process, secrets)

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self._end is not None

    @property
    def is_busy(self) -> bool:
        """Return whether it has unanswered requests."""
        return bool(self._waiting)

    async def ask(self, message: dict[str, msgspec.Raw], on_notification: Callable[[bytes], None]) -> bytes:
        """Send a request and return the answer, with the request's id. Raises ProcessEnded if there is none.

        `on_notification` is called with the server's notifications about this request. Cancelling the wait notifies the
        server.
        """
        number = next(self._ids)
        own = {**message, "id": msgspec.Raw(_encode(number))}
        params, progress = _with_token(message.get("params"), number)
        if params is not None:
            own["params"] = params
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(answer, message["id"], progress, on_notification)
        self.used_at = time.monotonic()
        try:
            await self._write(own)
            return await answer
        except asyncio.CancelledError:
            said = {"method": "notifications/cancelled", "params": {"requestId": number, "reason": "cancelled"}}
            self._tell({"jsonrpc": "2.0", **said})
            raise
        finally:
            del self._waiting[number]
            self.used_at = time.monotonic()

    async def notify(self, message: dict[str, msgspec.Raw]) -> None:
        """Send a notification. Raises ProcessEnded if the process has ended."""
        await self._write(message)

    async def stop(self) -> None:
        """Stop the process and its children."""
        self._over("it was stopped")
        for task in (*self._tasks, *self._telling):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._telling, return_exceptions=True)
        if self._process.stdin is not None:
            self._process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
                break
        self._signal(signal.SIGKILL)  # children that outlive it

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _over(self, why: str) -> None:
        """Mark the process as ended and fail its requests, once."""
        if self._end is not None:
            return
        self._end = ProcessEnded(f"MCP server {self.name!r}: {why}")
        for one in self._waiting.values():
            if not one.answer.done():
                one.answer.set_exception(self._end)

    async def _write(self, message: Any) -> None:
        stdin = self._process.stdin
        async with self._writing:
            if self._end is not None or stdin is None:
                raise self._end or ProcessEnded(f"MCP server {self.name!r} has no input")
            try:
                stdin.write(_encode(message) + b"\n")
                await stdin.drain()
            except (ConnectionError, RuntimeError) as error:
                self._over("it closed its input")
                raise self._end or ProcessEnded("it closed its input") from error

    def _tell(self, message: dict[str, Any]) -> None:
        async def tell() -> None:
            with contextlib.suppress(ProcessEnded):
                await self._write(message)

        if len(self._telling) < _LOGGED_LINES:  # bounds pending writes to a server that does not read
            task = asyncio.create_task(tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        why = "it closed its output"
        try:
            while line := await stdout.readline():
                self._take(line)
                if self._beside > _MAX_BESIDE:
                    why = f"it sent more than {_MAX_BESIDE} messages that answer nothing"
                    break
        except ValueError:
            why = f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes"
        except Exception:
            _log.exception("MCP server's output cannot be read", extra={"server": self.name})
            why = "its output cannot be read"
        _log.info("MCP server ended", extra={"server": self.name, "reason": why})
        self._over(why)
        self._signal(signal.SIGKILL)

    def _take(self, line: bytes) -> None:
        self._beside += 1
        try:
            message = _fields(line)
            number = _decode(message["id"]) if "id" in message else None
            method = _decode(message["method"]) if "method" in message else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # programs print to their output, against the protocol
        if method is None:
            waiting = self._waiting.get(number) if type(number) is int else None
            if waiting is not None and not waiting.answer.done():
                self._beside = 0
                waiting.answer.set_result(_encode({**message, "id": waiting.id}))
        elif number is None:
            self._pass_on(str(method), message)
        else:
            refusal = {"code": _METHOD_NOT_FOUND, "message": "the gateway is no user and no model"}
            said: dict[str, Any] = {"result": {}} if method == "ping" else {"error": refusal}
            self._tell({"jsonrpc": "2.0", "id": number, **said})

    def _pass_on(self, method: str, message: dict[str, msgspec.Raw]) -> None:
        """Pass a notification to the request that it is about, or to the only request."""
        if method != _PROGRESS:
            if len(self._waiting) == 1:
                next(iter(self._waiting.values())).on_notification(_encode(message))
            return
        try:
            params = _fields(message["params"])
            waiting = self._waiting.get(_decode(params["progressToken"]))
        except (msgspec.MsgspecError, KeyError, TypeError, RecursionError):
            return
        if waiting is not None and waiting.progress is not None:
            params = {**params, "progressToken": waiting.progress}
            waiting.on_notification(_encode({**message, "params": params}))

    async def _log_errors(self) -> None:
        """Log its stderr, at most 100 lines a minute, without secrets."""
        stderr = self._process.stderr
        assert stderr is not None
        minute, lines = 0.0, 0
        while True:
            try:
                line = await stderr.readline()
            except ValueError:  # a line longer than the limit
                continue
            if not line:
                return
            now = time.monotonic()
            if now - minute > 60:
                minute, lines = now, 0
            lines += 1
            if lines <= _LOGGED_LINES:
                text = without_credentials(line[:_LOGGED_BYTES].decode("utf-8", "replace").strip(), self._secrets)
                _log.info("MCP server says", extra={"server": self.name, "text": text})


def _with_token(params: msgspec.Raw | None, number: int) -> tuple[msgspec.Raw | None, msgspec.Raw | None]:
    """Return a request's parameters with this process's own progress token, and the original token."""
    if params is None or b"progressToken" not in bytes(params):
        return params, None
    try:
        fields = _fields(params)
        meta = _fields(fields["_meta"])
        token = meta["progressToken"]
    except (msgspec.MsgspecError, KeyError, RecursionError):
        return params, None
    meta["progressToken"] = msgspec.Raw(_encode(number))
    fields["_meta"] = msgspec.Raw(_encode(meta))
    return msgspec.Raw(_encode(fields)), token
