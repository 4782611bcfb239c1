"""One engine and its thread, which loads, steps and closes it. Its owner runs on an event loop."""

import asyncio
import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec

from backends.engine.base import EmbeddingEngine, Engine, EngineBuilder, EngineEvent, Facts, ModelOrder
from backends.engine.cold_requests import ColdRequests
from backends.engine.intake_pool import IntakePool
from backends.engine.refusal import refusal
from backends.engine.served import Served
from backends.engine.sleeper import Sleeper, sleeper
from contracts.engine.wire import Embed, ModelHello, ModelState, Submit
from contracts.errors import ConfigurationError, InvalidRequest, TollkeeperError, Unavailable
from contracts.recording.records import KvRecord, StepRecord

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0  # interval at which an idle engine's idle records are taken
_INLINE_TOKENS: Final = 1024  # longer prompts take over a millisecond to prepare: off the event loop
_LATENCIES: Final = 256

Task = Callable[[Engine], object]


@dataclass(frozen=True, slots=True)
class Output:
    """Everything that a step produced."""

    events: Sequence[EngineEvent] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    kv_events: list[KvRecord] = field(default_factory=list)


class EngineOwner(Protocol):
    """Callbacks for an engine's owner, on its event loop."""

    def on_output(self, thread: Served, output: Output) -> None:
        """Handle the output of a step."""

    def on_state(self, thread: Served) -> None:
        """Handle a change of the thread's `hello`."""


@dataclass(slots=True)
class _Status:
    """Shared with the event loop. Each field is replaced as a whole, so a reader needs no lock."""

    hello: ModelHello
    failure: str = ""
    step_began_ns: int = 0  # 0: no step is running
    last_step_ns: int = 0
    latencies_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_LATENCIES))


class EngineThread:
    """Serves one model. `start` returns at once; the owner is notified of loading, warm-up, readiness and output."""

    def __init__(
        self, order: ModelOrder, build: EngineBuilder, owner: EngineOwner, known: ModelHello | None = None
    ) -> None:
        """`order` is the model to load. `known` is its earlier hello if it was unloaded: requests are accepted, and
        wait.
        """
        self.order = order
        self._build = build
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._status = _Status(known or ModelHello(id=order.name, state="loading", progress=0.0))
        self._is_known = known is not None
        self._engine: Engine | None = None
        self._wake = threading.Event()
        self._awake = threading.Event()  # set while the engine is loaded and awake, and after it has failed
        self._cold_starts = ColdRequests()
        self._tasks: deque[tuple[Task, Future[object]]] = deque()
        self._is_closing = False
        self._intake = IntakePool(order.name)
        self._lock = threading.Lock()
        self._being_taken: dict[bytes, bool] = {}  # requests in preparation; True: aborted meanwhile
        self._thread = threading.Thread(target=self._run, name=f"engine-{order.name}", daemon=True)
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # Called by the event loop.

    def start(self) -> None:
        """Start loading the model."""
        self._thread.start()

    @property
    def is_started(self) -> bool:
        """Return whether loading was started; an unloaded model is loaded when a request needs it."""
        return self._thread.ident is not None

    @property
    def is_awake(self) -> bool:
        """Return whether the model is loaded and awake, so that requests are computed at once."""
        return self._awake.is_set() and self._engine is not None

    @property
    def can_sleep(self) -> bool:
        """Return whether its engine can sleep."""
        return sleeper(self._engine) is not None

    async def sleep(self, level: int) -> None:
        """Put the engine to sleep. No request may be running; new ones wait until `wake`."""
        self._serving()
        self._awake.clear()
        try:
            await self.call(lambda engine: _must_sleep(engine).sleep(level))
        except BaseException:
            self._awake.set()
            raise

    async def wake(self) -> None:
        """Wake the engine. If that fails, the engine has failed."""
        try:
            await self.call(lambda engine: _must_sleep(engine).wake())
        except Exception as error:
            self.close()
            reason = error.message if isinstance(error, TollkeeperError) else type(error).__name__
            self.set_state("failed", f"the engine did not wake: {reason}")
            raise
        self._awake.set()

    @property
    def hello(self) -> ModelHello:
        """Return the description of the model and its current state."""
        return self._status.hello

    @property
    def state(self) -> ModelState:
        """Return the current state."""
        return self._status.hello.state

    @property
    def failure(self) -> str:
        """Return the reason for the state "failed"; else empty."""
        return self._status.failure

    def set_state(self, state: ModelState, failure: str = "") -> None:
        """Change the model's reported state."""
        self._status.hello = msgspec.structs.replace(self._status.hello, state=state)
        self._status.failure = failure
        self._owner.on_state(self)

    def submit(self, submit: Submit) -> None:
        """Pass a request to the engine. Slow preparation (a grammar, a long prompt) runs off the event loop."""
        waits = not self.is_awake and (self._is_known or self._engine is not None)
        has_grammar = submit.grammar is not None or submit.tool_choice != ""
        if not waits:
            engine = self._serving()
            if not has_grammar and len(submit.token_ids) + len(submit.generated_ids) <= _INLINE_TOKENS:
                engine.submit(submit)
                self._wake.set()
                return
        else:
            self._cold_starts.wait(submit.request_id)
        with self._lock:
            self._being_taken[submit.request_id] = False
        self._intake.submit(submit.tenant, partial(self._take, submit))

    def embed(self, embed: Embed) -> None:
        """Pass inputs to an embedding model. Raises InvalidRequest if they exceed a limit."""
        engine = self._serving()
        if not isinstance(engine, EmbeddingEngine) or self.hello.kind != "embed":
            raise InvalidRequest(f"model {self.order.name!r} generates; it does not embed", param="model")
        engine.embed(embed)
        self._wake.set()

    def abort(self, request_id: bytes) -> None:
        """End a request; if it is still being prepared, after that."""
        with self._lock:
            if request_id in self._being_taken:
                self._being_taken[request_id] = True
                return
        if self._engine is not None:
            self._engine.abort(request_id)
            self._wake.set()

    def call(self, task: Task) -> "asyncio.Future[object]":
        """Run a task in the engine's thread between two steps. The future gets its result or exception."""
        self._serving()
        future: Future[object] = Future()
        self._tasks.append((task, future))
        self._wake.set()
        return asyncio.wrap_future(future, loop=self._loop)

    def note_adapters(self, adapters: Mapping[str, Path]) -> None:
        """Record the current adapters, to load them again after an unload and in a replacement."""
        self.order = replace(self.order, adapters=tuple(adapters.items()))

    async def refresh(self) -> None:
        """Update the hello from the engine after its adapters have changed."""
        hello = await self.call(lambda engine: engine.hello())
        assert isinstance(hello, ModelHello)
        self._status.hello = msgspec.structs.replace(hello, state=self.state)
        self._owner.on_state(self)

    def close(self) -> None:
        """Stop after the current step. `closed` is done when the model's memory is free."""
        self._is_closing = True
        self._wake.set()
        if not self.is_started:
            self._awake.set()
            self._intake.shutdown(wait=False)
            self._close_future()

    def stalled_ns(self) -> int:
        """Return the time since the current step started; 0 between steps."""
        began = self._status.step_began_ns
        return time.monotonic_ns() - began if began else 0

    def health(self) -> Facts:
        """Return the state and timing, without asking the engine, which may be stuck."""
        status = self._status
        ordered = sorted(status.latencies_ns.copy())
        now = time.monotonic_ns()
        return {
            "state": self.state,
            "failure": status.failure,
            "step_p50_ms": ordered[len(ordered) // 2] / 1e6 if ordered else None,
            "step_p99_ms": ordered[len(ordered) * 99 // 100] / 1e6 if ordered else None,
            "running_step_ms": self.stalled_ns() / 1e6,
            "last_step_age_seconds": (now - status.last_step_ns) / 1e9 if status.last_step_ns else None,
            "is_awake": self.is_awake,
        }

    def _serving(self) -> Engine:
        if self._engine is None or self._is_closing:
            state = f"failed: {self.failure}" if self.failure else "being unloaded" if self._is_closing else self.state
            raise Unavailable(f"model {self.order.name!r} is {state}; try again or use another replica")
        return self._engine

    def _take(self, submit: Submit) -> None:
        """Accept a request once the engine is awake; an unloaded or sleeping model is already being brought back."""
        engine: Engine | None = None
        try:
            self._awake.wait()
            self._cold_starts.served(submit.request_id)
            engine = self._serving()
            engine.submit(submit)
        except TollkeeperError as error:
            self._post(Output([refusal(submit.request_id, error)]))
        except Exception as error:  # a failing request must not stop its tenant's queue, and must be answered
            _log.exception("request not accepted model=%s", self.order.name)
            self._post(Output([refusal(submit.request_id, error)]))
        with self._lock:
            is_aborted = self._being_taken.pop(submit.request_id)
        if is_aborted and engine is not None:
            engine.abort(submit.request_id)
        self._wake.set()

    # Called by the engine's thread.

    def _run(self) -> None:
        try:
            self._load()
            while self._engine is not None and not self._is_closing:
                self._turn(self._engine)
        except TollkeeperError as error:
            self._status.failure = error.message
        except Exception as error:  # the thread must not end without reporting the failure
            _log.exception("engine broke model=%s", self.order.name)
            self._status.failure = f"the engine broke: {type(error).__name__}"
        self._finish()
        if self._status.failure:
            self._failed()

    def _load(self) -> None:
        began = time.monotonic()
        engine = self._build(self.order)
        _log.info("model loaded model=%s seconds=%.2f", self.order.name, time.monotonic() - began)
        if self._is_closing:
            engine.close()
            return
        try:
            if not self._is_known:
                self._tell(msgspec.structs.replace(engine.hello(), state="warming", progress=0.9))
            engine.warm_up()
            hello = engine.hello()
        except BaseException:
            self._end(engine)
            raise
        self._engine = engine
        self._awake.set()
        self._tell(hello)
        _log.info("model ready model=%s seconds=%.2f", self.order.name, time.monotonic() - began)

    def _turn(self, engine: Engine) -> None:
        self._wake.clear()
        while self._tasks:
            task, future = self._tasks.popleft()
            if not future.set_running_or_notify_cancel():
                continue  # the caller's time limit passed during a step
            try:
                future.set_result(task(engine))
            except Exception as error:  # the caller gets it
                future.set_exception(error)
        events: Sequence[EngineEvent] = []
        if engine.has_work:
            status = self._status
            status.step_began_ns = began = time.monotonic_ns()
            events = engine.step()
            status.last_step_ns = ended = time.monotonic_ns()
            status.latencies_ns.append(ended - began)
            status.step_began_ns = 0
        else:
            self._wake.wait(_IDLE_SECONDS)
        events = self._cold_starts.told(events)
        steps, kv_events = engine.take_steps(), engine.take_kv_events()
        if events or steps or kv_events:
            self._post(Output(events, steps, kv_events))

    def _failed(self) -> None:
        _log.error("model failed model=%s reason=%s", self.order.name, self._status.failure)
        self._status.step_began_ns = 0
        self._tell(msgspec.structs.replace(self._status.hello, state="failed"))

    def _finish(self) -> None:
        """Close the engine and release its memory."""
        engine, self._engine = self._engine, None
        self._awake.set()  # waiting requests are refused
        self._intake.shutdown(wait=True)
        while self._tasks:
            _, future = self._tasks.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(Unavailable(f"model {self.order.name!r} is being unloaded"))
        if engine is not None:
            self._end(engine)
        del engine
        gc.collect()
        self._on_loop(self._close_future)

    def _end(self, engine: Engine) -> None:
        try:
            engine.close()
            self._post(Output(steps=engine.take_steps()))
        except Exception:  # a failed engine may fail here again
            _log.exception("engine did not close model=%s", self.order.name)

    def _close_future(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _tell(self, hello: ModelHello) -> None:
        self._on_loop(lambda: self._say(hello))

    def _say(self, hello: ModelHello) -> None:
        """Set the state, on the event loop, where the owner is notified."""
        self._status.hello = hello
        self._owner.on_state(self)

    def _post(self, output: Output) -> None:
        self._on_loop(lambda: self._owner.on_output(self, output))

    def _on_loop(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            _log.debug("event loop has closed before engine thread model=%s", self.order.name)


def _must_sleep(engine: Engine) -> Sleeper:
    found = sleeper(engine)
    if found is None:
        raise ConfigurationError("this engine cannot sleep as it is set up; vLLM needs --enable-sleep-mode")
    return found
