"""A gateway as tests need it: one connection to a host, everything it hears kept, and a host to run beside it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from backends.engine.host import EngineHost
from contracts.engine.frame_splitter import FrameSplitter
from contracts.engine.wire import (
    WIRE_VERSION,
    Answer,
    Attach,
    Call,
    Delta,
    Embed,
    Embedded,
    Finished,
    FromGateway,
    FromHost,
    Hello,
    Sampling,
    Steps,
    StepsAck,
    Submit,
    frame,
    from_host,
)
from contracts.recording.records import Record, decode_record

MessageT = TypeVar("MessageT")
PATIENCE_SECONDS = 120.0


def make_submit(number: int, token_ids: list[int], *, max_tokens: int = 16, **options: object) -> Submit:
    """Build a request; fields of Sampling and of Submit may be given together. Greedy, end ignored, unless told."""
    names = set(Sampling.__struct_fields__)
    sampling = {"temperature": 0.0, "ignore_eos": True} | {k: v for k, v in options.items() if k in names}
    rest = {"model": "tiny"} | {k: v for k, v in options.items() if k not in names}
    return Submit(
        request_id=number.to_bytes(16, "big"),
        token_ids=token_ids,
        sampling=Sampling(max_tokens=max_tokens, **sampling),  # type: ignore[arg-type]  # options are the caller's
        **rest,  # type: ignore[arg-type]  # options are the caller's
    )


@dataclass
class HostClient:
    """One connection. `messages` holds all that came, in order; steps are acknowledged when `acks` is set."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    acks: bool = True
    messages: list[FromHost] = field(default_factory=list)
    is_closed: bool = False
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _calls: int = 0
    _task: "asyncio.Task[None] | None" = None

    @classmethod
    async def open(cls, path: Path, *, acks: bool = True, read: bool = True) -> "HostClient":
        reader, writer = await asyncio.open_unix_connection(str(path))
        client = cls(reader, writer, acks)
        if read:
            client.start_reading()
        return client

    def start_reading(self) -> None:
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        splitter = FrameSplitter()
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                for body in splitter.feed(data):
                    message = from_host(body)
                    self.messages.append(message)
                    if isinstance(message, Steps) and self.acks:
                        self.send(StepsAck(sequence=message.last_sequence))
                async with self._news:
                    self._news.notify_all()
        self.is_closed = True
        async with self._news:
            self._news.notify_all()

    def send(self, message: FromGateway) -> None:
        self.writer.write(frame(message))

    async def attach(self, gateway: str = "gateway", **wishes: bool) -> "HostClient":
        self.send(Attach(version=WIRE_VERSION, gateway=gateway, **wishes))
        await self.until(lambda: bool(self.of(Hello)))
        return self

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        async with self._news, asyncio.timeout(seconds):
            await self._news.wait_for(condition)

    async def until_closed(self) -> None:
        await self.until(lambda: self.is_closed)

    def of(self, kind: type[MessageT]) -> list[MessageT]:
        return [message for message in self.messages if isinstance(message, kind)]

    def deltas(self, request_id: bytes, index: int = 0) -> list[Delta]:
        return [one for one in self.of(Delta) if one.request_id == request_id and one.index == index]

    def token_ids(self, request_id: bytes, index: int = 0) -> list[int]:
        return [token for delta in self.deltas(request_id, index) for token in delta.token_ids]

    def text(self, request_id: bytes, index: int = 0) -> str:
        return "".join(delta.content for delta in self.deltas(request_id, index))

    def ends(self, request_id: bytes) -> list[Finished]:
        return [one for one in self.of(Finished) if one.request_id == request_id]

    async def end(self, request_id: bytes) -> Finished:
        await self.until(lambda: bool(self.ends(request_id)))
        return self.ends(request_id)[0]

    async def run(self, submit: Submit) -> Finished:
        self.send(submit)
        return await self.end(submit.request_id)

    async def embed(self, embed: Embed) -> Embedded:
        self.send(embed)
        found = lambda: [one for one in self.of(Embedded) if one.request_id == embed.request_id]  # noqa: E731  # read twice
        await self.until(lambda: bool(found()))
        return found()[0]

    async def call(self, verb: str, model: str = "", path: str = "", **options: float | int | str | bool) -> Answer:
        self._calls += 1
        number = self._calls
        self.send(Call(call_id=number, verb=verb, model=model, path=path, options=options))  # type: ignore[arg-type]  # verb is one of them
        answer = lambda: [one for one in self.of(Answer) if one.call_id == number]  # noqa: E731  # read twice
        await self.until(lambda: bool(answer()))
        return answer()[0]

    def states(self, model: str) -> list[str]:
        """Return the states a model was said to be in, without repetition."""
        states: list[str] = []
        for hello in self.of(Hello):
            state = next((one.state for one in hello.models if one.id == model), "")
            if state and states[-1:] != [state]:
                states.append(state)
        return states

    async def ready(self, model: str = "tiny") -> "HostClient":
        await self.until(lambda: self.states(model)[-1:] == ["ready"])
        return self

    def step_records(self) -> list[tuple[int, Record]]:
        """Return each step record that came with its number."""
        found: list[tuple[int, Record]] = []
        for steps in self.of(Steps):
            first = steps.last_sequence - len(steps.records) + 1
            found += [(first + place, decode_record(packed)) for place, packed in enumerate(steps.records)]
        return found

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        if self._task is not None:
            await self._task


@dataclass
class RunningHost:
    """A host in this event loop, on a real socket."""

    host: EngineHost
    path: Path
    server: asyncio.Server
    clients: list[HostClient] = field(default_factory=list)

    async def client(self, gateway: str = "gateway", *, acks: bool = True, **wishes: bool) -> HostClient:
        """Connect and attach."""
        client = await HostClient.open(self.path, acks=acks)
        self.clients.append(client)
        return await client.attach(gateway, **wishes)

    async def raw(self, *, read: bool = True) -> HostClient:
        """Connect and say nothing."""
        client = await HostClient.open(self.path, read=read)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        models = list(self.host.models)
        for model in models:
            model.close()
        for model in models:
            await model.closed
        self.server.close()
        self.host.close()


StartHost = Callable[..., Awaitable[RunningHost]]
