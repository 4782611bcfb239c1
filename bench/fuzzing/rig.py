"""A gateway in this process, clients that send it any bytes, a model server that answers with any, and its books."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar
from unittest import mock

import uvloop
import yaml

from backends.segment_log.segments import Position
from bench.fuzzing.answers import Answer, Fault, read_answers
from bench.fuzzing.bodies import SECRET, example_of
from bench.fuzzing.model_server import ModelServer
from contracts.recording.records import RequestRecord, decode_record
from gateway.apis.media import media_reply
from gateway.apis.operations import Operation
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from gateway.records.journal import unpack_entry
from gateway.request.dispatch import Dispatcher
from gateway.request.request_state import RequestState
from gateway.wire.exchange import Exchange

KEY: Final = "tk-" + "F" * 43
SCRIPTED: Final = "scripted-1"
SERVED: Final = "served-1"
_SETTLE_SECONDS: Final = 60.0
_CLOSED_SECONDS: Final = 10.0  # within which what is done with is closed
_STILL_TURNS: Final = 6  # of the loop without anything happening: what was sent has arrived by then
_EAGER_TURNS: Final = 200  # after which others are let have the core, such as an engine
_PAUSE_SECONDS: Final = 0.001
_LOOK_SECONDS: Final = 0.05
_READ_ENTRIES: Final = 1000
_RELEASE_BYTES: Final = 16 << 20

Leaving = Literal["close", "reset", "half-close"]
Given = TypeVar("Given")


def configuration(url: str) -> dict[str, Any]:
    """Return a gateway's file: a scripted model, and one behind HTTP; everything counted, nothing ever refused."""
    scripted = {"name": "s1", "kind": "scripted", "settings": {"script": {"tokens": 5}}}
    served = {"name": "h1", "kind": "openai_http", "url": url}
    money = {"input_text": "1", "output_text": "2"}
    return {
        "keys": [{"key": KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"}],
        "pools": [{"name": SCRIPTED, "targets": [scripted]}, {"name": SERVED, "targets": [served]}],
        "models": [{"name": name, "pool": name} for name in (SCRIPTED, SERVED)],
        "prices": [{"model": name, "version": f"{name}/1", "usd_per_mtok": money} for name in (SCRIPTED, SERVED)],
        "limits": [
            {
                "tenant": "acme",
                "level": "key",
                "subject": "*",
                "metric": "tokens",
                "window": "minute",
                "amount": 10**13,
            },
            {"tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 10**11},
        ],
        "budgets": [{"tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "900000"}],
    }


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client received, and whether the gateway closed its connection."""

    data: bytes
    is_closed: bool

    def answers(self) -> list[Answer]:
        """Read the answers. Raises Fault on what is none."""
        return read_answers(self.data, is_closed=self.is_closed)


class _Caller(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, leave_after: int | None) -> None:
        self.received = bytearray()
        self.is_closed = False
        self._leave_after = leave_after
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is one in all but its base class

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self._leave_after is not None and len(self.received) >= self._leave_after:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True


class _Complaints(logging.Handler):
    """Keeps what the gateway logs that it must not: faults of its own, and anything with the prompt or the key."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{self.format(record)} {record.__dict__}"
        if record.exc_info or "Traceback" in text or SECRET in text or KEY in text:
            self.found.append(text[:2000])


class FuzzRig:
    """Runs coroutines beside a gateway; `with` starts and ends it. `operations` are its own, by their first path."""

    def __init__(self, home: Path, keys: Sequence[dict[str, Any]] = (), engine: tuple[str, str] | None = None) -> None:
        """Keep everything below `home`. `keys` are taken besides the one; `engine` is a host's URL and its model."""
        self._home = home
        self._keys = keys
        self._engine = engine
        self.models = [SCRIPTED, SERVED] if engine is None else [SCRIPTED, SERVED, engine[1]]
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._complaints = _Complaints()
        self._seen: set[bytes] = set()  # ids on records
        self._place: Position | None = None  # in the journal, up to which they are read
        self._begun = 0
        self._descriptors: Counter[str] = Counter()
        self._level = logging.WARNING
        self.records: list[RequestRecord] = []  # of the last example
        self.upstream = ModelServer()
        self.gateway: Gateway
        self.operations: list[Operation] = []
        self.answered: list[tuple[Operation, str, bool]] = []  # which model answers what with 200, streamed or not

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self._complaints)
        self.run(self._start())
        self.run(self._find_answered())
        gc.collect()
        self._descriptors = _open_descriptors()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._stop())
        finally:
            self._runner.close()
            logging.getLogger().removeHandler(self._complaints)
            logging.getLogger().setLevel(self._level)

    def run(self, work: Coroutine[Any, Any, Given]) -> Given:
        """Run a coroutine on the gateway's loop."""
        return self._runner.run(work)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complaints.found.append(str(context)[:2000]))
        await self.upstream.start()
        file = self._home / "gateway.yaml"
        config = configuration(self.upstream.url)
        config["keys"] += self._keys
        if self._engine is not None:
            url, model = self._engine
            config["pools"].append({"name": model, "targets": [{"name": "e1", "kind": "engine", "url": url}]})
            config["models"].append({"name": model, "pool": model})
            free = {"input_text": "0", "cache_read_text": "0", "output_text": "0"}
            config["prices"].append({"model": model, "version": f"{model}/1", "usd_per_mtok": free})
        file.write_text(yaml.safe_dump(config))
        settings = GatewaySettings(
            data=self._home / "data",
            gateway_config=file,
            gateway_port=0,
            drain_seconds=0.2,
            invalid_keys_per_minute=10**6,
        )
        with mock.patch("gateway.process.app.Dispatcher", self._counting_dispatcher()):
            self.gateway = Gateway(settings)
        await self.gateway.start()
        while self._engine is not None and not self.gateway.is_engine_ready("default"):
            await asyncio.sleep(_LOOK_SECONDS)
        known = self.gateway._endpoints._operations.values()
        self.operations = list({operation.paths[0]: operation for operation in known}.values())

    def _counting_dispatcher(self) -> type[Dispatcher]:
        """Return a dispatcher that counts what it begins: compiled, none of its methods can be replaced."""
        rig = self

        class CountingDispatcher(Dispatcher):
            def serve(self, exchange: Exchange, operation: Operation, *more: Any, **others: Any) -> RequestState:
                rig._begun += 1
                return super().serve(exchange, operation, *more, **others)

        return CountingDispatcher

    async def _stop(self) -> None:
        await self.gateway.stop()
        await self.upstream.stop()

    async def _find_answered(self) -> None:
        """Ask for everything once: what is only made at first use is made then."""
        for operation in self.operations:
            if operation.reply is media_reply:  # the server answers chats: that is no sound, and no picture
                continue
            for model in (SCRIPTED, SERVED):
                for stream in (False, True):
                    [answer] = await self.ask(self.request(operation, model, stream=stream))
                    if answer.status == 200 and answer.is_stream == stream:
                        self.answered.append((operation, model, stream))
        await self.settle()

    @property
    def shapes(self) -> list[ErrorShape]:
        """Return how errors may look, over all APIs."""
        return [OPENAI_ERRORS, *(operation.errors for operation in self.operations)]

    # clients

    @staticmethod
    def request(operation: Operation, model: str = SCRIPTED, *, stream: bool = False, **more: Any) -> bytes:
        """Write the plainest good request of an operation."""
        body = example_of(operation.api, model) | ({"stream": True} if stream else {}) | more
        data = json.dumps(body).encode()
        head = (
            f"POST {operation.paths[0]} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    async def ask(self, data: bytes) -> list[Answer]:
        """Send bytes on a connection of their own and give all answers."""
        return (await self.converse([data])).answers()

    async def converse(
        self, pieces: Sequence[bytes], leave: Leaving = "close", leave_after: int | None = None
    ) -> Heard:
        """Send pieces one by one, wait until nothing more happens, leave; return what came.

        `leave_after` bytes of an answer the client resets the connection. Raises Fault if the gateway does not come to
        rest.
        """
        loop = asyncio.get_running_loop()
        caller = _Caller(leave_after)
        await loop.create_connection(lambda: caller, "127.0.0.1", self.gateway.port)
        for piece in pieces:
            if not caller.transport.is_closing():
                caller.transport.write(piece)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        if leave == "close" or leave_after is not None:
            await self._quiet(caller)
        heard = Heard(bytes(caller.received), caller.is_closed)
        if leave == "half-close" and not caller.transport.is_closing():
            caller.transport.write_eof()
            await self._quiet(caller)
        if leave == "reset":
            caller.transport.abort()
        else:
            caller.transport.close()
        return heard

    async def _quiet(self, caller: _Caller) -> None:
        """Wait until nothing has happened for some turns of the loop, and nothing is in progress."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_SECONDS
        still = turns = 0
        before: tuple[object, ...] = ()
        while still < _STILL_TURNS:
            turns += 1
            await asyncio.sleep(0 if turns < _EAGER_TURNS else _PAUSE_SECONDS)
            connections = self.gateway._server._connections
            unsent = 0 if caller.transport.is_closing() else caller.transport.get_write_buffer_size()
            read = sum(one._body_size + one._unparsed_bytes for one in connections)
            now = (self._begun, len(caller.received), caller.is_closed, read, unsent)
            is_busy = unsent > 0 or any(connection.is_busy for connection in connections)
            still = still + 1 if now == before and not is_busy else 0
            before = now
            if loop.time() > deadline:
                raise Fault("the gateway does not come to rest")

    # what must hold when all is over

    async def settle(self) -> None:
        """Wait until every client is gone, and hold the books against what was begun. Raises Fault."""
        self.upstream.script = None
        self.upstream.bodies.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_SECONDS
        while left := self._left():
            if loop.time() > deadline:
                raise Fault(f"not given back: {left}")
            await asyncio.sleep(0)
        await self.gateway._serving.settled()
        self._read_records()
        if self._complaints.found:
            found = self._complaints.found.pop(0)
            self._complaints.found.clear()
            raise Fault(f"the gateway logged: {found}")

    async def recover(self) -> None:
        """Start again after a fault: whatever is still open is cut, and the books are even."""
        for connection in tuple(self.gateway._server._connections):
            connection.abort()
        self.upstream.hang_up()
        with contextlib.suppress(Fault):
            await self.settle()

    def check_descriptors(self) -> None:
        """Hold the open descriptors to what they were at the start. Raises Fault."""
        deadline = time.monotonic() + _CLOSED_SECONDS
        while True:
            self.run(self._hang_up())
            gc.collect()
            now = _open_descriptors()
            if now.total() <= self._descriptors.total():
                return
            if time.monotonic() > deadline:
                more = ", ".join(f"{count} {name}" for name, count in sorted((now - self._descriptors).items()))
                raise Fault(
                    f"{now.total()} descriptors are open, at the start {self._descriptors.total()}; new: {more}"
                )

    async def _hang_up(self) -> None:
        self.upstream.hang_up()
        for _ in range(_STILL_TURNS * 4):
            await asyncio.sleep(0)

    def _left(self) -> dict[str, int]:
        held = {
            "connections": self.gateway._server.connection_count,
            "requests in flight": self.gateway.admission.in_flight,
            "grants": self.gateway._dispatcher.open_grants,
        }
        return {name: count for name, count in held.items() if count}

    def _read_records(self) -> None:
        """Accept the records of the last example off the journal: one for each request begun, no id twice."""
        journal, recorder = self.gateway.journal, self.gateway.recorder
        self.records = []
        place = self._place or journal.cursor
        while entries := journal.read(place, max_entries=_READ_ENTRIES, max_bytes=1 << 26):
            for entry in entries:
                record = decode_record(unpack_entry(entry)[1])
                if isinstance(record, RequestRecord):
                    if record.request_id in self._seen:
                        raise Fault(f"two records have the id {record.request_id.hex()}")
                    self._seen.add(record.request_id)
                    self.records.append(record)
            self._place = place = entries[-1].end
        if journal.pending_bytes > _RELEASE_BYTES:
            journal.release(place)
        accounted = len(self._seen) + recorder.unauthenticated_requests + recorder.unrecorded_rejections
        begun, self._begun = self._begun, accounted  # told once: the next example begins with even books
        if accounted != begun:
            raise Fault(f"{begun} requests were begun, and {accounted} are accounted for")

    def record_of(self, answer: Answer) -> RequestRecord:
        """Return the record of an answer of the last example. Raises Fault if there is none, or it says otherwise."""
        wanted = uuid.UUID(answer.request_id).bytes
        found = [record for record in self.records if record.request_id == wanted]
        if len(found) != 1:
            raise Fault(f"{len(found)} records have the id of an answer")
        told = {503: {503, 529}}.get(found[0].status, {found[0].status})  # Anthropic's API has a status of its own
        if not answer.is_stream and answer.status not in told:
            raise Fault(f"the record says status {found[0].status}, the answer {answer.status}")
        return found[0]


def _open_descriptors() -> Counter[str]:
    """Count the open descriptors by kind: a file's name, or "socket:", "pipe:", ..."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of this listing
            found[os.readlink(f"/proc/self/fd/{number}").partition("[")[0]] += 1
    return found
