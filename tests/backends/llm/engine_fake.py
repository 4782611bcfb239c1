"""An engine host that does what a test tells it: speaks the wire over a real socket, and computes nothing."""

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from backends.engine.settings import BUILTIN_PATH
from backends.engine.torch_engine.model_files import read_model_files
from contracts.engine.frame_splitter import FrameSplitter
from contracts.engine.wire import (
    WIRE_VERSION,
    Abort,
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
    ModelHello,
    StepsAck,
    Submit,
    frame,
    from_gateway,
)
from contracts.metering.usage import Usage
from contracts.recording.records import GpuShare

WORDS = (" one", " two", " three", " four", " five")


def builtin_hello(name: str = "tiny", **fields) -> ModelHello:
    """The built-in model as its host would describe it."""
    files = read_model_files(BUILTIN_PATH)
    given = {
        "id": name,
        "weights_hash": "weights",
        "tokenizer": files.tokenizer,
        "tokenizer_hash": sha256(files.tokenizer).hexdigest(),
        "chat_template": files.chat_template,
        "template_hash": sha256(files.chat_template.encode()).hexdigest(),
        "special_tokens": files.special_tokens,
        "eos_token_ids": [2],
        "context_tokens": 8192,
        "vocabulary": 4096,
    }
    return ModelHello(**{**given, **fields})


@dataclass
class Play:
    """How the fake answers. A fault happens after `after` tokens: "die" closes, "stall" says nothing more."""

    tokens: int = 5
    gap_seconds: float = 0.0
    cached: int = 0
    fault: str = ""
    after: int = 0
    finished: dict[str, object] = field(default_factory=dict)  # fields of Finished that differ
    piece: str = ""  # each token's text, if not the words in turn


class FakeHost:
    """Listens on a Unix socket. `received` holds all frames, with the loop's time of each."""

    def __init__(self, path: Path, play: Play | None = None, models: list[ModelHello] | None = None) -> None:
        self.path = path
        self.play = play or Play()
        self.models = models if models is not None else [builtin_hello()]
        self.version = WIRE_VERSION
        self.received: list[tuple[float, FromGateway]] = []
        self.on_attach: Callable[[FakeHost], None] = lambda host: None
        self.account_delay = 0.0
        self.answers_calls = True
        self.connections = 0
        self._held: list[FromHost] | None = None  # while it is frozen
        self._thawed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._made: dict[bytes, int] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    async def start(self) -> "FakeHost":
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    def of(self, kind: type) -> list:
        """Every frame of a kind that came."""
        return [message for _, message in self.received if isinstance(message, kind)]

    def freeze(self) -> None:
        """Neither read nor write from now on, as a stopped process does, with its connections open."""
        self._held = []

    def thaw(self) -> None:
        """Send what was held, and go on."""
        held, self._held = self._held, None
        self._thawed.set()
        self._thawed = asyncio.Event()
        for message in held or ():
            self.send(message)

    def send(self, message: FromHost) -> None:
        if self._held is not None:
            self._held.append(message)
            return
        for writer in self._writers:
            if not writer.is_closing():
                writer.write(frame(message))

    def write(self, data: bytes) -> None:
        for writer in self._writers:
            writer.write(data)

    def hello(self) -> Hello:
        return Hello(
            version=self.version,
            engine="fake-1",
            engine_kind="fake",
            engine_version="0",
            models=self.models,
            clock_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
        )

    def drop(self) -> None:
        """Break every connection, and listen on."""
        for task in self._tasks.values():
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers = []

    async def stop(self) -> None:
        self.drop()
        if self._server is not None:
            self._server.close()
            self._server = None
        self.path.unlink(missing_ok=True)
        await asyncio.sleep(0)

    async def _until_thawed(self) -> None:
        while self._held is not None:
            await self._thawed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._until_thawed()
        self._writers.append(writer)
        writer.write(frame(self.hello()))
        splitter = FrameSplitter()
        try:
            while data := await reader.read(1 << 16):
                await self._until_thawed()
                for body in splitter.feed(data):
                    message = from_gateway(body)
                    self.received.append((asyncio.get_running_loop().time(), message))
                    self._take(message)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _take(self, message: FromGateway) -> None:
        match message:
            case Attach():
                self.on_attach(self)
            case Submit():
                self._tasks[message.request_id] = asyncio.create_task(self._answer(message))
            case Abort():
                self._spawn(self._abort(message))
            case Call():
                if self.answers_calls:
                    self.send(Answer(call_id=message.call_id))
            case Embed():
                self._embed(message)
            case StepsAck():
                pass

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _answer(self, submit: Submit) -> None:
        play, begun = self.play, len(submit.generated_ids)
        total = min(play.tokens, submit.sampling.max_tokens)
        for number in range(begun, total):
            if play.fault and number - begun >= play.after:
                return await self._fault(submit)
            if play.gap_seconds:
                await asyncio.sleep(play.gap_seconds)
            self._made[submit.request_id] = number - begun + 1
            is_last = number == total - 1
            self.send(
                Delta(
                    request_id=submit.request_id,
                    token_ids=[100 + number],
                    times_ns=[1_000_000_000 + number * 2_000_000],  # 2 ms apart, by the engine's clock
                    content=play.piece or WORDS[number % len(WORDS)],
                    cached_tokens=play.cached if number == begun else None,
                    finish_reason="length" if is_last else None,
                )
            )
        if play.fault:
            return await self._fault(submit)
        self.send(self.finished(submit, total - begun, "length"))

    async def _fault(self, submit: Submit) -> None:
        if self.play.fault == "die":
            await asyncio.sleep(0.02)  # what was written before arrives first
            asyncio.get_running_loop().call_soon(self.drop)
        elif self.play.fault == "error":
            made = self._made.get(submit.request_id, 0)
            given = {"error_code": "engine_failure", "error_message": "the step failed", **self.play.finished}
            self.send(replace_struct(self.finished(submit, made, "error"), **given))

    async def _abort(self, message: Abort) -> None:
        if self.account_delay:
            await asyncio.sleep(self.account_delay)
        task = self._tasks.get(message.request_id)
        submit = next(one for one in self.of(Submit) if one.request_id == message.request_id)
        if task is not None and not task.done():
            task.cancel()
        # The engine had computed one token more than it had told of when it heard of the abort.
        made = self._made.get(message.request_id, 0) + 1
        self.send(self.finished(submit, made, "abort"))

    def finished(self, submit: Submit, made: int, reason) -> Finished:
        prompt = len(submit.token_ids)
        account: Finished = replace_struct(
            Finished(
                request_id=submit.request_id,
                finish_reason=reason,
                usage=Usage(prompt - self.play.cached, cache_read_text=self.play.cached, output_text=made),
                gpu=GpuShare(prefill_ns=1000, decode_ns=2000, method="steptime-as/1"),
                recompute_tokens=3,
                overrun_tokens=2,
                wasted_tokens=1,
                queue_ns=4_000_000,
            ),
            **(self.play.finished if reason != "error" else {}),
        )
        return account

    def _embed(self, message: Embed) -> None:
        vectors = b"".join(struct.pack("<2f", float(len(ids)), 0.5) for ids in message.inputs)
        tokens = sum(map(len, message.inputs))
        self.send(Embedded(request_id=message.request_id, dimensions=2, vectors=vectors, input_tokens=tokens))


def replace_struct(message, **fields):
    return msgspec.structs.replace(message, **fields)
