"""The embedder's process as seen by its user: started on demand, and restarted when it dies."""

import asyncio
import contextlib
import logging
import os
import sys
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from backends.embedder.base import MOST_CHARACTERS, MOST_TOKENS, Embedding
from backends.embedder.kept_vectors import KeptVectors, VectorKey, key_of
from backends.embedder.messages import Answer, Ask, Ready, Unusable, frame, read_answer, take_frames
from contracts.errors import EmbedderUnavailable

_log = logging.getLogger(__name__)

_MODULE: Final = "backends.embedder"
# Of a long text only so many characters are sent: more than enough for `MOST_TOKENS` in any language.
_HEAD_CHARACTERS: Final = 4096
_TAIL_CHARACTERS: Final = MOST_CHARACTERS - 1 - _HEAD_CHARACTERS
_MOST_WAITING: Final = 1024
_KEPT_VECTORS: Final = 4096  # 2 KB each
_READ_BYTES: Final = 1 << 16
_CLOSE_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_NEWEST_SHARE: Final = 0.1  # of the latest answer in the moving average
# The process reads texts of all tenants and needs no secret, so it gets only the variables that Python needs.
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_*", "TMPDIR", "PYTHON*", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class _Asked(msgspec.Struct, frozen=True, gc=False):
    key: VectorKey
    at: float  # the loop's time
    place: int  # in the queue, from 1


class EmbedderChild:
    """An `Embedder` in a separate process. Used from one event loop."""

    def __init__(self, threads: int = 1, command: tuple[str, ...] = (sys.executable, "-m", _MODULE)) -> None:
        self._command = command
        kept = {name: value for name, value in os.environ.items() if any(fnmatchcase(name, k) for k in _ENVIRONMENT)}
        self._environment = {**kept, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._running: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._kept = KeptVectors(_KEPT_VECTORS)
        self._flights: dict[VectorKey, asyncio.Future[Embedding]] = {}
        self._asked: dict[int, _Asked] = {}
        self._unsent: list[bytes] = []  # frames queued until the process is ready
        self._number = 0
        self._last_early = 0  # the last request that also waited for the process to load
        self._seconds_each = 0.0  # per queued text, by the latest answers
        self._not_before = 0.0  # the loop's time
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._is_closed = False
        self.identity = ""
        self.fault = ""  # why it does not run, in words for its operators
        self.restarts = 0
        self.made = 0  # vectors computed so far

    @property
    def is_ready(self) -> bool:
        """Return whether the model is loaded."""
        return self._process is not None and bool(self.identity)

    async def embed(
        self, text: str, owner: str, most_tokens: int = MOST_TOKENS, within_seconds: float | None = None
    ) -> Embedding:
        """Embed one text; see `Embedder.embed`. Raises EmbedderUnavailable.

        Its code is `embedder_busy` if waiting texts would delay it beyond `within_seconds`: the text is then not
        accepted.
        """
        is_cut = len(text) > MOST_CHARACTERS
        if is_cut:
            text = f"{text[:_HEAD_CHARACTERS]} {text[-_TAIL_CHARACTERS:]}"
        plain = text.encode(errors="replace")
        # A truncated text needs another cache key than a text that equals its remainder.
        key = key_of(plain, owner, -most_tokens if is_cut else most_tokens)
        found = self._kept.get(key)
        if found is not None:
            return found
        flight = self._flights.get(key)
        if flight is None:
            waits_seconds = (len(self._asked) + 1) * self._seconds_each
            if within_seconds is not None and self._asked and waits_seconds > within_seconds:
                raise EmbedderUnavailable(
                    f"{len(self._asked)} texts wait for the embedder, about {waits_seconds:.2f} seconds",
                    code="embedder_busy",
                )
            flight = self._ask(key, plain, most_tokens, is_cut)
        return await asyncio.shield(flight)  # one caller's cancellation does not cancel it for others, nor its caching

    def begin(self) -> None:
        """Start the process in advance, so that the first text need not wait for it."""
        if self._running is None and not self._is_closed and asyncio.get_running_loop().time() >= self._not_before:
            self._running = asyncio.create_task(self._run(), name="embedder")

    async def close(self) -> None:
        """End the process. Waiting callers get an error."""
        self._is_closed = True
        process, running = self._process, self._running
        if process is not None and process.stdin is not None:
            process.stdin.close()  # it exits at the end of its input
        if running is not None:
            # While it loads, it does not read its input.
            await asyncio.wait({running}, timeout=_CLOSE_SECONDS if self.is_ready else 0)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        self._fail("it is closed")

    def _ask(self, key: VectorKey, text: bytes, most_tokens: int, is_cut: bool) -> asyncio.Future[Embedding]:
        self.begin()
        if self._running is None:
            raise EmbedderUnavailable(f"the embedder does not run: {self.fault or 'it is closed'}")
        if len(self._asked) >= _MOST_WAITING:
            raise EmbedderUnavailable(f"{_MOST_WAITING} texts wait for the embedder; no more are taken")
        self._number += 1
        message = frame(Ask(self._number, text, most_tokens, is_cut))
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        flight.add_done_callback(_look_at_its_end)
        self._asked[self._number] = _Asked(key, asyncio.get_running_loop().time(), len(self._asked) + 1)
        if self.is_ready:
            self._send(message)
        else:
            self._unsent.append(message)
        return flight

    async def _run(self) -> None:
        """Run one process from its start to its end."""
        loop = asyncio.get_running_loop()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
            )
            await self._read(self._process)
            self.fault = self.fault or f"it ended with status {await self._process.wait()}"
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self.fault = f"{type(error).__name__} on the way to it"
        finally:
            process, self._process, self._running = self._process, None, None
            self.identity = ""
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
            self._not_before = loop.time() + self._pause_seconds
            self._pause_seconds = min(self._pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
            if not self._is_closed:
                self.restarts += 1
                _log.error("embedder ended", extra={"reason": self.fault})
            self._fail(self.fault)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        buffer = bytearray()
        while got := await process.stdout.read(_READ_BYTES):
            buffer += got
            for body in take_frames(buffer):
                message = read_answer(body)
                if isinstance(message, Answer):
                    self._take(message)
                elif isinstance(message, Ready):
                    self.identity, self.fault = message.identity, ""
                    self._last_early = self._number
                    self._send(b"".join(self._unsent))
                    self._unsent.clear()
                elif isinstance(message, Unusable):
                    self.fault = message.reason
                    self._pause_seconds = _LONGEST_PAUSE_SECONDS

    def _take(self, answer: Answer) -> None:
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self.made += 1
        asked = self._asked.pop(answer.number, None)
        if asked is None:
            return
        if answer.number > self._last_early:
            seconds = (asyncio.get_running_loop().time() - asked.at) / asked.place
            self._seconds_each += (seconds - self._seconds_each) * _NEWEST_SHARE
        embedding = Embedding(answer.vector, answer.tokens, answer.is_whole)
        self._kept.keep(asked.key, embedding)
        flight = self._flights.pop(asked.key)
        if not flight.done():
            flight.set_result(embedding)

    def _send(self, data: bytes) -> None:
        if data and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(data)  # bounded by _MOST_WAITING, so it need not drain

    def _fail(self, reason: str) -> None:
        flights = list(self._flights.values())
        self._flights.clear()
        self._asked.clear()
        self._unsent.clear()
        for flight in flights:
            if not flight.done():
                flight.set_exception(EmbedderUnavailable(f"the embedder does not run: {reason}"))


def _look_at_its_end(flight: asyncio.Future[Embedding]) -> None:
    """Log a failure that no caller waits for."""
    if not flight.cancelled():
        flight.exception()
