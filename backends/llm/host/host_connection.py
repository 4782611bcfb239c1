"""The connection to one engine or provider host: reconnects when it breaks, shared by all targets of that host.

Frames of requests are passed to their streams inside `data_received`; all other frames are rare.
"""

import asyncio
import logging
import math
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, TypeVar

from backends.llm.base import EngineRecords, KvListener
from backends.llm.host.engine_address import EngineAddress
from backends.llm.host.engine_line import EngineLine
from backends.llm.host.engine_room import EngineRoom, Fact, RoomBook
from backends.llm.host.engine_stream import EngineStream
from backends.llm.host.kv_news import KvNews
from backends.llm.host.step_intake import StepIntake
from backends.llm.provider_stream import ProviderStream
from backends.processes.running_time import RunningTimeout
from contracts.engine.wire import (
    WIRE_VERSION,
    Abort,
    Answer,
    Attach,
    Call,
    Chunk,
    Devices,
    Embed,
    Embedded,
    Finished,
    FromGateway,
    FromHost,
    Hello,
    Hold,
    Invoke,
    Invoked,
    KvBlocks,
    KvEvents,
    ModelHello,
    Steps,
    StepsAck,
    Submit,
)
from contracts.errors import EngineUnavailable, HostLost, UnsupportedParameter

_log = logging.getLogger(__name__)

_HELLO_SECONDS: Final = 5.0
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 1.0
_PING_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 0.5
# A host that sends nothing for this long after a ping is hung. Counted in ticks of this loop instead of by the clock,
# so that a delay in the gateway does not count.
_HUNG_SECONDS: Final = 3.0
_HUNG_LOADING_SECONDS: Final = 30.0  # while no model is ready: importing libraries can block the host for seconds
_MOVE_SECONDS: Final = 10.0  # then requests in progress move to another host, if one has the same models

MessageT = TypeVar("MessageT")


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host's state: ready, loading, failed, hung, away or incompatible; and the latency of a ping, if any."""

    state: str
    detail: str
    latency_ns: int | None
    engine: str
    models: Mapping[str, str]
    requests: int
    unreadable_step_records: int
    facts: Mapping[str, Fact] = field(default_factory=dict)  # its counters, at most a second old


@dataclass(frozen=True, slots=True)
class Taking:
    """This gateway's name for hosts, and what it wants from them besides answers."""

    gateway: str = "gateway"
    records: EngineRecords | None = None
    wants_kv: bool = False  # into the records
    kv: KvListener | None = None
    tls: ssl.SSLContext | None = None  # for hosts on other machines
    hung_seconds: float = 30.0  # time until the connection to a hung host is closed; 0: never


@dataclass(frozen=True, slots=True)
class HostWords:
    """A kind of host in messages: its name, and how to start it."""

    name: str
    remedy: str


ENGINE_WORDS: Final = HostWords("engine host", "start it with `python -m backends.engine` or `tollkeeper up`")


class HostConnection:
    """Connection to one host: an engine host, or the provider host."""

    def __init__(
        self,
        address: EngineAddress,
        taking: Taking,
        on_hello: Callable[[Hello], None],
        words: HostWords = ENGINE_WORDS,
        has_substitute: Callable[[list[ModelHello]], bool] = lambda models: False,
    ) -> None:
        """`has_substitute` returns whether other hosts serve all of the given models."""
        address.require_safe(taking.tls)
        self.address = address
        self._words = words
        self._taking = taking
        self._on_hello = on_hello
        self._steps = StepIntake(taking.records)
        self._news = KvNews(address.url, taking.records, taking.kv, records_kv=taking.wants_kv)
        self._line: EngineLine | None = None
        self._hello: Hello | None = None
        self._away_because = "it has not been reached yet"
        self._is_incompatible = False
        self._is_hung = False
        self._hung_because = ""
        self._has_substitute = has_substitute
        self._streams: dict[bytes, EngineStream] = {}
        self._provider_streams: dict[bytes, ProviderStream] = {}
        self._embeds: dict[bytes, asyncio.Future[Embedded]] = {}
        self._embed_models: dict[bytes, str] = {}
        self._calls: dict[int, asyncio.Future[Answer]] = {}
        self._call_ids = count(1)
        self._latency_ns: int | None = None
        self._rooms = RoomBook()
        self._stats: asyncio.Future[Answer] | None = None  # the request for counters in progress
        self._clock_offset_ns = 0  # the host's monotonic clock minus this process's
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"engine host {address}")

    # called by targets

    def model(self, name: str) -> ModelHello:
        """Return a model that is ready. Raises EngineUnavailable with the reason if it is not."""
        if self._hello is None or self._is_hung:
            raise self._away()
        for model in self._hello.models:
            if model.id != name:
                continue
            if model.state == "ready":
                return model
            progress = f", {model.progress:.0%} loaded" if model.state == "loading" else ""
            raise EngineUnavailable(f"the engine's model {name!r} is not ready: {model.state}{progress}")
        served = ", ".join(model.id for model in self._hello.models) or "none"
        raise EngineUnavailable(f"the engine host at {self.address} serves no model {name!r}; it serves: {served}")

    def ready_models(self) -> list[ModelHello]:
        """Return the models that accept requests now."""
        models = self._hello.models if self._hello is not None and not self._is_hung else ()
        return [model for model in models if model.state == "ready"]

    def host_time_ns(self, monotonic_ns: int) -> int:
        """Convert a time of this process's monotonic clock to the host's. For remote hosts, off by the latency of its
        hello.
        """
        return monotonic_ns + self._clock_offset_ns

    def room(self, name: str) -> EngineRoom | None:
        """Return a model's free capacity; `None` if it is not ready or does not report it."""
        models = self._hello.models if self._hello is not None and not self._is_hung else ()
        return next((self._rooms.room(model) for model in models if model.id == name), None)

    def submit(self, message: Submit, stream: EngineStream) -> None:
        """Start a request. Raises EngineUnavailable."""
        self._send(message)
        stream.model = message.model
        self._streams[message.request_id] = stream

    def abort(self, request_id: bytes) -> None:
        """Stop a request. Its end still arrives, unless the host is gone."""
        if self._line is not None and (request_id in self._streams or request_id in self._provider_streams):
            self._line.send(Abort(request_id=request_id))

    def forget(self, request_id: bytes) -> None:
        """Remove a request, whether or not it has ended."""
        self._streams.pop(request_id, None)
        self._provider_streams.pop(request_id, None)

    def invoke(self, message: Invoke, stream: ProviderStream) -> None:
        """Start a request at a provider, at the provider host that this connection leads to.

        Raises EngineUnavailable, or UnsupportedParameter if the operation is not supported.
        """
        offered = () if self._hello is None else self._hello.operations
        if self._hello is not None and not offered:
            raise EngineUnavailable(f"the {self._words.name} at {self.address} is stopping")
        if offered and message.operation not in offered:
            raise UnsupportedParameter(
                f"hosted providers are not asked for {message.operation}, only for {', '.join(offered)}",
                code="unsupported_operation",
                param="model",
            )
        self._send(message)
        self._provider_streams[message.request_id] = stream

    def hold(self, request_id: bytes, *, is_held: bool) -> None:
        """Pause a provider's answer for a slow client, or resume it."""
        if self._line is not None and request_id in self._provider_streams:
            self._line.send(Hold(request_id=request_id, is_held=is_held))

    def embed(self, message: Embed) -> "asyncio.Future[Embedded]":
        """Start to embed. Raises EngineUnavailable; the future may fail with HostLost."""
        self._send(message)
        future: asyncio.Future[Embedded] = asyncio.get_running_loop().create_future()
        self._embeds[message.request_id] = future
        self._embed_models[message.request_id] = message.model
        return future

    def forget_embed(self, request_id: bytes) -> None:
        """Remove an embedding, whether or not it has ended."""
        self._embed_models.pop(request_id, None)
        future = self._embeds.pop(request_id, None)
        if future is not None:
            future.cancel()

    # called by the gateway's health checks

    def status(self) -> HostStatus:
        """Return the host's status."""
        unreadable = self._steps.unreadable_records
        if self._hello is None:
            state = "incompatible" if self._is_incompatible else "away"
            return HostStatus(state, self._away_because, None, "", {}, 0, unreadable)
        models = {model.id: model.state for model in self._hello.models}
        states = set(models.values())
        state = next((one for one in ("failed", "loading", "warming", "draining") if one in states), "ready")
        detail = ""
        if self._is_hung:
            state, detail = "hung", self._hung_because
        requests = len(self._streams) + len(self._provider_streams)
        return HostStatus(
            state, detail, self._latency_ns, self._hello.engine, models, requests, unreadable, self._rooms.facts
        )

    async def close(self) -> None:
        """Disconnect. Requests in progress fail."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._steps.close()

    # called by the connection

    def on_message(self, line: EngineLine, message: FromHost) -> None:
        """Process a frame that is not a delta."""
        match message:
            case Chunk():
                if message.request_id in self._provider_streams:
                    self._provider_streams[message.request_id].on_chunk(message)
            case Invoked():
                invoked = self._provider_streams.pop(message.request_id, None)
                if invoked is not None:
                    invoked.on_invoked(message)
            case Finished():
                stream = self._streams.pop(message.request_id, None)
                if stream is not None:
                    stream.on_finished(message)
            case Steps():
                self._steps.take(message, self._acknowledge)
            case KvEvents() | KvBlocks() | Devices():
                self._news.take(message)
            case Hello():
                self._greet(line, message)
            case Embedded():
                _resolve(self._embeds.get(message.request_id), message)
            case Answer():
                self._news.answered(message)
                _resolve(self._calls.get(message.call_id), message)

    def stream_of(self, request_id: bytes) -> EngineStream | None:
        """Return the stream of a request in progress."""
        return self._streams.get(request_id)

    async def _run(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while True:
            line = await self._connect()
            if line is not None:
                try:
                    wait = await self._serve(line) or wait
                finally:
                    self._lose(line)
            await asyncio.sleep(random.uniform(0.5, 1.0) * wait)
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)

    async def _connect(self) -> EngineLine | None:
        try:
            async with RunningTimeout(_HELLO_SECONDS):
                return await self.address.connect(lambda: EngineLine(self), self._taking.tls)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            self._note_away(f"{reason}; {self._words.remedy}")
            return None

    async def _serve(self, line: EngineLine) -> float | None:
        """Ping the host until the connection ends. Returns the seconds to wait before reconnecting; `None` without a
        hello.
        """
        if not await line.greeted(_HELLO_SECONDS):
            self._note_away(f"it printed nothing for {_HELLO_SECONDS:g} s{self._tls_hint}")
            return None
        if self._line is not line:
            if not self._is_incompatible:
                self._note_away(f"{line.lost_because} before it introduced itself{self._tls_hint}")
            return None
        while not line.is_lost:
            await self._ping(line)
        return _FIRST_WAIT_SECONDS

    @property
    def _tls_hint(self) -> str:
        # Event loops close the connection without an error if a TLS handshake fails remotely, or was not begun here.
        if self.address.path:
            return ""
        if self._taking.tls is None:
            return (
                "; if it speaks TLS, set TOLLKEEPER_ENGINE_CLIENT_CERTIFICATE, its key and TOLLKEEPER_ENGINE_CLIENT_CA"
            )
        return "; its TOLLKEEPER_ENGINE_TLS_CLIENT_CA must hold who signed this gateway's certificate"

    async def _ping(self, line: EngineLine) -> None:
        call_id = next(self._call_ids)
        answered = self._calls[call_id] = asyncio.get_running_loop().create_future()
        began = time.monotonic_ns()
        line.send(Call(call_id=call_id, verb="health"))
        try:
            await self._wait_for_life(line, answered)
        finally:
            self._calls.pop(call_id, None)
        self._latency_ns = time.monotonic_ns() - began if answered.done() else None
        if not line.is_lost:
            self._ask_for_room(line)
            await asyncio.wait((line.lost,), timeout=_PING_SECONDS)

    async def _wait_for_life(self, line: EngineLine, answered: "asyncio.Future[Answer]") -> None:
        """Wait for the answer to a ping. Any frame counts. A host that sends none is hung, and finally disconnected."""
        received, silent_seconds = line.received, 0.0
        while True:
            await asyncio.wait((answered, line.lost), timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if line.received != received or answered.done():
                received, silent_seconds = line.received, 0.0
                self._note_life()
            if answered.done() or line.is_lost:
                return
            silent_seconds += _TICK_SECONDS
            if not self._is_hung and silent_seconds >= self._hung_after:
                self._note_hung(silent_seconds)
            if self._is_hung and silent_seconds >= self._leave_after:
                line.close(f"it did not answer for {silent_seconds:g} s")

    @property
    def _hung_after(self) -> float:
        states = set() if self._hello is None else {model.state for model in self._hello.models}
        is_starting = "ready" not in states and bool(states & {"loading", "warming"})
        return _HUNG_LOADING_SECONDS if is_starting else _HUNG_SECONDS

    @property
    def _leave_after(self) -> float:
        """Return the seconds after which requests at a hung host end here, to continue at another host or to fail.

        The connection must end then, so that the host records what it computed for them.
        """
        most = self._taking.hung_seconds or math.inf
        names = {stream.model for stream in self._streams.values()} | set(self._embed_models.values())
        models = [model for model in (self._hello.models if self._hello is not None else ()) if model.id in names]
        return min(_MOVE_SECONDS, most) if models and self._has_substitute(models) else most

    def _ask_for_room(self, line: EngineLine) -> None:
        """Request the host's counters without waiting: an engine answers between two steps."""
        if self._stats is not None:
            return
        call_id = next(self._call_ids)
        self._stats = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self._stats.add_done_callback(partial(self._take_room, call_id))
        line.send(Call(call_id=call_id, verb="stats"))

    def _take_room(self, call_id: int, answered: "asyncio.Future[Answer]") -> None:
        self._calls.pop(call_id, None)
        self._stats = None
        if not answered.cancelled() and answered.result().ok and self._hello is not None:
            self._rooms.note(self._hello, answered.result().facts, ours=len(self._streams))

    def _greet(self, line: EngineLine, hello: Hello) -> None:
        """Process a hello. The first makes the connection usable, later ones update the models."""
        self._is_incompatible = hello.version != WIRE_VERSION
        if self._is_incompatible:
            self._note_away(
                f"it speaks version {hello.version} of the engine wire, this gateway version {WIRE_VERSION}; "
                "run both from the same release"
            )
            line.close()
            return
        self._hello = hello
        self._on_hello(hello)
        self._news.greeted(hello, line.send, self._call_ids)
        if self._line is line:
            return
        self._line = line
        if not self.address.path:  # processes of one machine share the clock
            self._clock_offset_ns = hello.clock_ns - time.monotonic_ns()
        _log.info("engine host reached", extra={"host": str(self.address), "models": len(hello.models)})
        wants_steps = self._taking.records is not None
        line.send(
            Attach(
                version=WIRE_VERSION,
                gateway=self._taking.gateway,
                wants_steps=wants_steps,
                wants_kv=self._news.is_wanted,
                wants_devices=wants_steps,
            )
        )
        line.greet()

    def _lose(self, line: EngineLine) -> None:
        line.close()
        if self._line is not line:
            return
        self._line = self._hello = None
        self._is_hung = False
        self._rooms.forget()
        self._news.lost()
        if self._stats is not None:
            self._stats.cancel()
        if line.is_lost:
            self._note_away(line.lost_because)
        error = HostLost(f"the {self._words.name} at {self.address} went away before the answer was complete")
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(error)
        provider_streams, self._provider_streams = self._provider_streams, {}
        for provider_stream in provider_streams.values():
            provider_stream.fail(error)
        for embed in self._embeds.values():
            if not embed.done():
                embed.set_exception(error)
        self._steps.forget()

    def _note_hung(self, silent_seconds: float) -> None:
        self._is_hung, self._latency_ns = True, None
        self._hung_because = f"it is connected but has not answered for {silent_seconds:g} s"
        requests = len(self._streams) + len(self._provider_streams)
        extra = {"host": str(self.address), "silent_seconds": silent_seconds, "requests": requests}
        _log.warning(f"{self._words.name} hung", extra=extra)

    def _note_life(self) -> None:
        if self._is_hung:
            self._is_hung = False
            _log.info(f"{self._words.name} answers again", extra={"host": str(self.address)})

    def _note_away(self, reason: str) -> None:
        if self._away_because != reason:
            _log.warning("engine host unreachable", extra={"host": str(self.address), "reason": reason})
        self._away_because = reason
        self._latency_ns = None

    def _acknowledge(self, sequence: int) -> None:
        if self._line is not None:
            self._line.send(StepsAck(sequence=sequence))

    def _away(self) -> EngineUnavailable:
        state, reason = ("hung", self._hung_because) if self._is_hung else ("away", self._away_because)
        return EngineUnavailable(f"the {self._words.name} at {self.address} is {state}: {reason}")

    def _send(self, message: FromGateway) -> None:
        if self._line is None or self._line.is_lost or self._is_hung:
            raise self._away()
        self._line.send(message)


def _resolve(future: "asyncio.Future[MessageT] | None", message: MessageT) -> None:
    if future is not None and not future.done():
        future.set_result(message)
