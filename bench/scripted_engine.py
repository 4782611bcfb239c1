"""An engine that computes nothing and plays tokens as fast as it is let: for the wire's benchmark and its tests."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from backends.engine.base import Engine, EngineBuilder, EngineEvent, Facts, ModelOrder
from backends.engine.settings import BUILTIN_PATH
from backends.engine.torch_engine.model_files import ModelFiles, read_model_files
from contracts.engine.wire import Delta, Finished, ModelHello, Submit
from contracts.errors import ConfigurationError
from contracts.metering.usage import Usage
from contracts.recording.records import KvRecord, StepRecord

_PIECES = (" the", " books", " close", " when", " every", " part", " sums", ".")
_CONTEXT_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How it plays: `step_seconds` for a step, at most `max_sequences` requests in one, each `tokens` a step."""

    step_seconds: float = 0.0
    max_sequences: int = 256
    tokens: int = 1
    context_tokens: int = _CONTEXT_TOKENS
    block_step: threading.Event | None = None  # while it is clear, a step does not end
    is_busy: bool = False  # a step computes for its seconds, as a prefill does, and does not sleep
    break_step: threading.Event | None = None  # once it is set, a step raises


@dataclass(slots=True)
class _Request:
    submit: Submit
    made: int = 0


@dataclass(slots=True)
class ScriptedEngine:
    """Plays `max_tokens` tokens for every request. Speaks with the built-in model's tokenizer."""

    order: ModelOrder
    script: Script
    files: ModelFiles = field(default_factory=lambda: read_model_files(BUILTIN_PATH))
    adapters: list[str] = field(default_factory=list)
    _arrived: deque[Submit] = field(default_factory=deque)
    _unwanted: deque[bytes] = field(default_factory=deque)
    _running: dict[bytes, _Request] = field(default_factory=dict)
    _steps: list[StepRecord] = field(default_factory=list)
    _sequence: int = 0
    _offset_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())

    def submit(self, submit: Submit) -> None:
        """Accept a request."""
        self._arrived.append(submit)

    def abort(self, request_id: bytes) -> None:
        """End a request at the next step."""
        self._unwanted.append(request_id)

    @property
    def has_work(self) -> bool:
        """Return whether anything is to be played."""
        return bool(self._arrived or self._unwanted or self._running)

    def step(self) -> list[EngineEvent]:
        """Play one step."""
        began = time.monotonic_ns()
        script = self.script
        while self._arrived:
            submit = self._arrived.popleft()
            self._running[submit.request_id] = _Request(submit)
        events: list[EngineEvent] = []
        while self._unwanted:
            unwanted = self._running.pop(self._unwanted.popleft(), None)
            if unwanted is not None:
                events.append(_finished(unwanted, "abort"))
        batch = list(self._running.values())[: script.max_sequences]
        for request in batch:
            events += self._play(request)
        if script.break_step is not None and script.break_step.is_set():
            raise AssertionError("the script says so")
        if script.block_step is not None:
            script.block_step.wait()
        if script.step_seconds and script.is_busy:
            _compute(script.step_seconds)
        elif script.step_seconds:
            time.sleep(script.step_seconds)
        if batch:
            self._record(began, batch)
        return events

    def warm_up(self) -> None:
        """Need none."""

    def load_adapter(self, name: str, path: Path) -> None:
        """Pretend to load one that exists."""
        if not path.is_dir():
            raise ConfigurationError(f"{path} is not an adapter: there is no such directory")
        self.adapters.append(name)

    def unload_adapter(self, name: str) -> None:
        """Forget one."""
        if name not in self.adapters:
            raise ConfigurationError(f"there is no adapter {name!r}")
        self.adapters.remove(name)

    def hello(self) -> ModelHello:
        """Describe a model that any prompt fits."""
        return ModelHello(
            id=self.order.name,
            weights_hash="scripted",
            tokenizer_hash=self.files.tokenizer_hash,
            template_hash=self.files.template_hash,
            tokenizer=self.files.tokenizer,
            chat_template=self.files.chat_template,
            special_tokens=self.files.special_tokens,
            eos_token_ids=list(self.files.eos_token_ids),
            context_tokens=self.script.context_tokens,
            vocabulary=_CONTEXT_TOKENS,
            adapters=self.adapters,
        )

    def take_steps(self) -> list[StepRecord]:
        """Return the step records since the last call."""
        taken, self._steps = self._steps, []
        return taken

    def take_kv_events(self) -> list[KvRecord]:
        """Return none: there is no cache."""
        return []

    def stats(self) -> Facts:
        """Return how many are played to."""
        return {"running": len(self._running), "waiting": len(self._arrived)}

    def close(self) -> None:
        """Hold nothing."""

    def _play(self, request: _Request) -> list[EngineEvent]:
        submit = request.submit
        count = min(self.script.tokens, submit.sampling.max_tokens - request.made)
        now = time.monotonic_ns()
        first = request.made
        request.made += count
        is_last = request.made >= submit.sampling.max_tokens
        delta = Delta(
            request_id=submit.request_id,
            token_ids=[5 + (place & 7) for place in range(first, request.made)],
            times_ns=[now] * count,
            content="".join(_PIECES[place & 7] for place in range(first, request.made)),
            cached_tokens=None if first else 0,
            finish_reason="length" if is_last else None,
        )
        if not is_last:
            return [delta]
        del self._running[submit.request_id]
        return [delta, _finished(request, "length")]

    def _record(self, began_ns: int, batch: list[_Request]) -> None:
        busy = time.monotonic_ns() - began_ns
        self._sequence += 1
        self._steps.append(
            StepRecord(
                engine=self.order.engine,
                sequence=self._sequence,
                started_at_ns=began_ns + self._offset_ns,
                busy_ns=busy,
                model=self.order.name,
                request_ids=[request.submit.request_id for request in batch],
                scheduled=[1] * len(batch),
            )
        )


def _finished(request: _Request, reason: str) -> Finished:
    return Finished(
        request_id=request.submit.request_id,
        finish_reason="abort" if reason == "abort" else "length",
        usage=Usage(input_text=len(request.submit.token_ids), cache_read_text=0, output_text=request.made),
    )


def scripted_builder(script: Script, *, on_build: Callable[[ModelOrder], None] | None = None) -> EngineBuilder:
    """Return a host's builder of such engines. `on_build` is called in the loading thread and may raise or wait."""

    def build(order: ModelOrder) -> Engine:
        if on_build is not None:
            on_build(order)
        return ScriptedEngine(order, script)

    return build


def _compute(seconds: float) -> None:
    """Multiply matrices: in compiled code without the interpreter's lock, and in Python between two products."""
    import numpy as np  # here: the scripts that sleep need none

    matrix = np.random.default_rng(1).random((512, 512))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        matrix = matrix @ matrix
        matrix /= np.abs(matrix).max()
