"""The embedder's thread: batches inputs of several requests by length, and answers each request when it is complete."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from backends.engine.base import Facts, ModelOrder
from backends.engine.embed_check import check_embed
from backends.engine.embed_meter import METHOD, EmbedMeter, EmbedRow
from backends.engine.refusal import embed_refusal
from backends.engine.served import Served
from backends.engine.settings import EngineHostSettings
from backends.processes.kept_imports import kept_imports
from contracts.engine.wire import Embed, Embedded, ModelHello, ModelState
from contracts.errors import ClientGone, TollkeeperError, Unavailable
from contracts.recording.records import GpuShare, StepRecord

if TYPE_CHECKING:
    import torch

    from backends.engine.embedder import Embedder

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_BATCH_TOKENS: Final = 512  # padding included; more would not fit the processor core's cache
_TURN_BATCHES: Final = 4  # sorted together; more would sort better but delay new requests
_LATENCIES: Final = 256


class EmbedOwner(Protocol):
    """Callbacks for the embedder's owner, on its event loop."""

    def on_embedded(self, thread: Served, answers: list[Embedded], steps: list[StepRecord]) -> None:
        """Handle answers and step records."""

    def on_state(self, thread: Served) -> None:
        """Handle a change of the thread's `hello`."""


@dataclass(slots=True, eq=False)
class _Job:
    embed: Embed
    dimensions: int
    arrived_ns: int
    next: int = 0  # index of the next input
    done: int = 0
    gpu_ns: int = 0
    computed_tokens: int = 0
    vectors: list["torch.Tensor"] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(map(len, self.embed.inputs))


@dataclass(frozen=True, slots=True)
class _Input:
    job: _Job
    place: int
    ids: list[int]


def plan_batches(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Group inputs into batches of similar length, shortest first. Return lists of indices, each padded to at most
    `most_tokens`.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[place] * (len(batch) + 1) > most_tokens:
            batches.append(batch)
            batch = []
        batch.append(place)
    if batch:
        batches.append(batch)
    return batches


class EmbedThread:
    """Serves the embedder, with the interface of an engine's thread."""

    def __init__(
        self, order: ModelOrder, settings: EngineHostSettings, owner: EmbedOwner, loading: threading.Lock
    ) -> None:
        self.order = order
        self._threads = settings.threads
        self._owner = owner
        self._loading = loading
        self._loop = asyncio.get_running_loop()
        self._hello = ModelHello(id=order.name, kind="embed", state="loading", progress=0.0)
        self._failure = ""
        self._meter = EmbedMeter(order.engine, order.name, settings.replica)
        self._wake = threading.Event()
        self._arrived: deque[_Job] = deque()
        self._aborted: deque[bytes] = deque()
        self._jobs: dict[bytes, _Job] = {}  # used by the thread only
        self._is_closing = False
        self._began_ns = 0
        self._last_ns = 0
        self._latencies_ns: deque[int] = deque(maxlen=_LATENCIES)
        self._thread = threading.Thread(target=self._run, name=f"embed-{order.name}", daemon=True)
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # Called by the event loop.

    def start(self) -> None:
        """Start loading the embedder."""
        self._thread.start()

    @property
    def hello(self) -> ModelHello:
        """Return the description of the model and its current state."""
        return self._hello

    @property
    def state(self) -> ModelState:
        """Return the current state."""
        return self._hello.state

    @property
    def failure(self) -> str:
        """Return the reason for the state "failed"; else empty."""
        return self._failure

    def set_state(self, state: ModelState, failure: str = "") -> None:
        """Change the model's reported state."""
        self._hello = msgspec.structs.replace(self._hello, state=state)
        self._failure = failure
        self._owner.on_state(self)

    def embed(self, embed: Embed) -> None:
        """Queue a request. Raises InvalidRequest if it exceeds a limit."""
        check_embed(embed, self._hello)
        self._arrived.append(_Job(embed, embed.dimensions or self._hello.dimensions, time.monotonic_ns()))
        self._wake.set()

    def abort(self, request_id: bytes) -> None:
        """End a request after the current batch."""
        self._aborted.append(request_id)
        self._wake.set()

    def close(self) -> None:
        """Stop after the current batch."""
        self._is_closing = True
        self._wake.set()

    def stalled_ns(self) -> int:
        """Return the time since the current batch started; 0 between batches."""
        began = self._began_ns
        return time.monotonic_ns() - began if began else 0

    def health(self) -> Facts:
        """Return the state and timing, without asking the thread."""
        ordered = sorted(self._latencies_ns.copy())
        return {
            "state": self.state,
            "failure": self._failure,
            "step_p50_ms": ordered[len(ordered) // 2] / 1e6 if ordered else None,
            "step_p99_ms": ordered[len(ordered) * 99 // 100] / 1e6 if ordered else None,
            "running_step_ms": self.stalled_ns() / 1e6,
            "last_step_age_seconds": (time.monotonic_ns() - self._last_ns) / 1e9 if self._last_ns else None,
            "waiting": len(self._arrived),
            "running": len(self._jobs),
        }

    # Called by the embedder's thread.

    def _run(self) -> None:
        try:
            embedder = self._load()
            while not self._is_closing:
                self._turn(embedder)
            for request_id in list(self._jobs):
                self._aborted.append(request_id)
            answers = self._receive()
            self._meter.close()
            self._post(answers)
        except TollkeeperError as error:
            self._failure = error.message
        except Exception as error:  # the thread must not end without reporting the failure
            _log.exception("embedder broke model=%s", self.order.name)
            self._failure = f"the embedder broke: {type(error).__name__}"
        self._on_loop(self._close_future)
        if self._failure:
            self._failed()

    def _load(self) -> "Embedder":
        began = time.monotonic()
        self._meter.lifecycle("load")
        with self._loading:
            with kept_imports():
                from backends.engine.embedder import Embedder  # takes seconds: after the socket is open

            embedder = Embedder(self._threads)
        hello = msgspec.structs.replace(embedder.hello(), id=self.order.name)
        self._tell(msgspec.structs.replace(hello, state="warming", progress=0.9))
        self._meter.lifecycle("warmup")
        embedder.warm_up()
        self._meter.lifecycle(None)
        self._meter.queue(time.monotonic_ns(), runnable=False)
        self._tell(hello)
        _log.info("model ready model=%s seconds=%.2f", self.order.name, time.monotonic() - began)
        return embedder

    def _turn(self, embedder: "Embedder") -> None:
        self._wake.clear()
        answers = self._receive()
        if not self._jobs:
            if not answers:
                self._wake.wait(_IDLE_SECONDS)
        else:
            inputs = self._choose()
            for batch in plan_batches([len(one.ids) for one in inputs], _BATCH_TOKENS * self._threads):
                answers += self._try(embedder, [inputs[place] for place in batch])
            finished = [job for job in self._jobs.values() if job.done == len(job.embed.inputs)]
            for job in finished:
                del self._jobs[job.embed.request_id]
                answers.append(_answer(job))
            if not self._jobs and not self._arrived:
                self._meter.queue(time.monotonic_ns(), runnable=False)
        self._post(answers)

    def _receive(self) -> list[Embedded]:
        """Add new requests; return the answers to aborted ones."""
        while self._arrived:
            job = self._arrived.popleft()
            if not self._jobs:
                self._meter.queue(job.arrived_ns, runnable=True)
            self._jobs[job.embed.request_id] = job
        answers = []
        while self._aborted:
            request_id = self._aborted.popleft()
            unwanted = self._jobs.pop(request_id, None)
            if unwanted is not None:
                aborted = ClientGone("the request was aborted")
                answers.append(
                    embed_refusal(request_id, aborted, input_tokens=unwanted.computed_tokens, gpu=_share(unwanted))
                )
                if not self._jobs:
                    self._meter.queue(time.monotonic_ns(), runnable=False)
        return answers

    def _choose(self) -> list[_Input]:
        """Take equally many tokens from each job, at least one input, so that a large job does not delay a
        small one.
        """
        room = _BATCH_TOKENS * self._threads * _TURN_BATCHES
        share = max(1, room // len(self._jobs))
        chosen: list[_Input] = []
        for job in self._jobs.values():
            given = 0
            while job.next < len(job.embed.inputs) and given < share:
                ids = job.embed.inputs[job.next]
                chosen.append(_Input(job, job.next, ids))
                job.next += 1
                given += len(ids)
            room -= given
            if room <= 0:
                break
        return chosen

    def _try(self, embedder: "Embedder", batch: list[_Input]) -> list[Embedded]:
        """Compute a batch. An error ends only the requests of the batch; their answers are returned."""
        batch = [one for one in batch if one.job.embed.request_id in self._jobs]
        try:
            if batch:
                self._compute(embedder, batch)
            return []
        except Exception as error:
            cause = str(error).partition("\n")[0][:200]  # torch's first line names shapes and sizes, never content
            _log.error("batch failed model=%s error=%s cause=%s", self.order.name, type(error).__name__, cause)
        self._began_ns = 0
        reason = Unavailable("the embedder could not compute this request", code="engine_failure")
        ends = []
        for job in dict.fromkeys(one.job for one in batch):
            del self._jobs[job.embed.request_id]
            ends.append(embed_refusal(job.embed.request_id, reason, input_tokens=job.computed_tokens, gpu=_share(job)))
        return ends

    def _compute(self, embedder: "Embedder", batch: list[_Input]) -> None:
        self._began_ns = began = time.monotonic_ns()
        vectors = embedder.embed([one.ids for one in batch])
        self._last_ns = ended = time.monotonic_ns()
        self._began_ns = 0
        self._latencies_ns.append(ended - began)
        tokens: dict[_Job, int] = {}
        for one in batch:
            tokens[one.job] = tokens.get(one.job, 0) + len(one.ids)
        rows = [EmbedRow(job.embed.request_id, job.embed.tenant, count) for job, count in tokens.items()]
        parts = self._meter.step(began, ended - began, rows, len(self._arrived))
        for job, part in zip(tokens, parts, strict=True):
            job.gpu_ns += part
            job.computed_tokens += tokens[job]
        for one, vector in zip(batch, vectors, strict=True):
            if not one.job.vectors:
                one.job.vectors = [vector] * len(one.job.embed.inputs)
            one.job.vectors[one.place] = vector
            one.job.done += 1

    def _failed(self) -> None:
        _log.error("model failed model=%s reason=%s", self.order.name, self._failure)
        self._began_ns = 0
        self._tell(msgspec.structs.replace(self._hello, state="failed"))

    def _close_future(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _tell(self, hello: ModelHello) -> None:
        self._on_loop(lambda: self._say(hello))

    def _say(self, hello: ModelHello) -> None:
        """Set the state, on the event loop, where the owner is notified."""
        self._hello = hello
        self._owner.on_state(self)

    def _post(self, answers: list[Embedded]) -> None:
        steps = self._meter.take(idle=not self._jobs and not self._arrived)
        if answers or steps:
            self._on_loop(lambda: self._owner.on_embedded(self, answers, steps))

    def _on_loop(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            _log.debug("event loop has closed before embedder thread model=%s", self.order.name)


def _answer(job: _Job) -> Embedded:
    import torch  # already imported in this thread, and slow to import on the event loop

    vectors = torch.stack(job.vectors)[:, : job.dimensions]
    if job.dimensions < len(job.vectors[0]):
        vectors = torch.nn.functional.normalize(vectors, dim=1)
    return Embedded(
        request_id=job.embed.request_id,
        dimensions=job.dimensions,
        vectors=vectors.contiguous().numpy().astype("<f4", copy=False).tobytes(),
        input_tokens=job.tokens,
        gpu=_share(job),
    )


def _share(job: _Job) -> GpuShare | None:
    return GpuShare(prefill_ns=job.gpu_ns, method=METHOD) if job.gpu_ns else None
