"""A real pool for the fairness benchmark: the gateway's queue before a torch engine host, a process of its own.

The host serves the built-in model on a CPU and is spoken to over its socket, as the gateway does it. What lies before
the queue, HTTP and the clients' sockets, is left out, as it is in the simulator.
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import StepRow, compose
from algorithms.gpu_time.step_samples import StepSample
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.engine_stream import EngineStream
from backends.llm.host.host_connection import HostConnection, Taking
from bench.pool_simulator import Course, EngineModel, Job
from contracts.api.generation import Delta, Result, Vectors
from contracts.engine.wire import Sampling, Submit
from contracts.errors import EngineUnavailable
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import CountMethod, StepRecord, decode_record
from contracts.rules.limits import QueueSpec
from gateway.limits.queue.pool_queue import Place, PoolQueue
from gateway.request.clock import Clock

SEQUENCES: Final = 16
BATCH_TOKENS: Final = 512
_MODEL: Final = "builtin"
_KV_BYTES: Final = 256 << 20
_READY_SECONDS: Final = 60.0
_FIRST_ID, _VOCABULARY = 16, 4096  # beyond the special tokens


class StepShelf:
    """Keeps the step records that a host hands over."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []

    def take_steps(self, packed: Sequence[bytes]) -> bool:
        """Keep records for good."""
        records = map(decode_record, packed)
        self.steps += [record for record in records if isinstance(record, StepRecord) and record.kind == "step"]
        return True

    def take_kv(self, packed: Sequence[bytes]) -> None:
        """Let KV events go."""


class _Listener:
    """Notes when tokens come, and tells the place of them."""

    def __init__(self, course: Course, place: Place, now_ns: Callable[[], int], lags_ns: list[int]) -> None:
        self._course = course
        self._place = place
        self._now_ns = now_ns
        self._lags_ns = lags_ns

    def delta(self, delta: Delta) -> None:
        """Accept tokens."""
        if delta.tokens:
            self._place.produced(delta.tokens)
            if self._course.first_ns is None:
                self._course.first_ns = self._now_ns()
            if delta.times_ns:
                self._lags_ns.append(time.monotonic_ns() - delta.times_ns[-1])

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Engine hosts send none."""

    def whole(self, body: bytes) -> None:
        """Engine hosts send none."""

    def vectors(self, vectors: Vectors) -> None:
        """Nobody asks for any."""

    def scores(self, scores: list[float]) -> None:
        """Nobody asks for any."""

    def served(self, model: str, version: str) -> None:
        """It is the one model that there is."""

    def answered_at(self, tier: str) -> None:
        """Engine hosts have one service tier."""

    def account(self, result: Result) -> None:
        """Nothing is billed."""

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Nothing is billed."""

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Never slow."""

    async def drained(self) -> None:
        """Never slow."""


class RealPool:
    """One engine host behind a queue of the gateway."""

    def __init__(self, host: HostConnection, shelf: StepShelf) -> None:
        self.shelf = shelf
        self.lags_ns: list[int] = []  # from a token's time in the engine to its arrival here
        self._host = host
        self._source = random.Random(0)

    async def play(self, jobs: Sequence[Job], spec: QueueSpec) -> list[Course]:
        """Play jobs in real time to their end. Times in the courses are from the beginning."""
        queue = PoolQueue("pool", spec, Clock())
        courses = [Course(job) for job in jobs]
        prompts = [self._prompt(job.prompt_tokens) for job in jobs]  # made before, so that it takes no time within
        loop = asyncio.get_running_loop()
        began = loop.time() + 0.1
        began_ns = time.monotonic_ns() + 100_000_000
        async with asyncio.TaskGroup() as group:
            for course, prompt in zip(courses, prompts, strict=True):
                wait = began + course.job.arrival_ns / 1e9 - loop.time()
                if wait > 0:
                    await asyncio.sleep(wait)
                group.create_task(self._one(course, prompt, queue, lambda: time.monotonic_ns() - began_ns))
        return courses

    async def _one(self, course: Course, prompt: list[int], queue: PoolQueue, now_ns: Callable[[], int]) -> None:
        place = await queue.enter(course.job.request())
        course.begun_ns = now_ns()
        request_id = uuid7(time.time_ns()).bytes
        stream = EngineStream(_Listener(course, place, now_ns, self.lags_ns), len(prompt), 1)
        sampling = Sampling(max_tokens=course.job.output_tokens, temperature=0.0, ignore_eos=True)
        submit = Submit(
            request_id=request_id, model=_MODEL, token_ids=prompt, sampling=sampling, tenant=course.job.tenant
        )
        try:
            self._host.submit(submit, stream)
            final = await stream.finished()
        finally:
            self._host.forget(request_id)
            place.leave()
        course.ended_ns = now_ns()
        if final.error_code:
            raise RuntimeError(f"the engine host failed a request: {final.error_message}")

    def _prompt(self, tokens: int) -> list[int]:
        return [self._source.randrange(_FIRST_ID, _VOCABULARY) for _ in range(tokens)]


@asynccontextmanager
async def real_pool(data: Path) -> AsyncIterator[RealPool]:
    """Start a host with its files in `data`, and stop it in the end. Raises RuntimeError if it does not start."""
    process = subprocess.Popen(
        [sys.executable, "-m", "backends.engine"],
        env={
            **os.environ,
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_ENGINE_EMBEDDER": "false",
            "TOLLKEEPER_ENGINE_DEVICE": "cpu",
            "TOLLKEEPER_ENGINE_THREADS": "1",
            "TOLLKEEPER_ENGINE_KV_BYTES": str(_KV_BYTES),
            "TOLLKEEPER_ENGINE_MAX_SEQUENCES": str(SEQUENCES),
            "TOLLKEEPER_ENGINE_MAX_BATCH_TOKENS": str(BATCH_TOKENS),
            "TOLLKEEPER_ENGINE_PREFIX_CACHE": "false",
        },
        stderr=subprocess.DEVNULL,
    )
    shelf = StepShelf()
    hosts = EngineHosts(Taking("bench", shelf))
    url = f"unix://{data}/run/engine-default.sock"
    try:
        host = hosts.join(url)
        await _ready(host)
        yield RealPool(host, shelf)
        await hosts.leave(url)
    finally:
        process.terminate()
        process.wait()


async def _ready(host: HostConnection) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            host.model(_MODEL)
            return
        except EngineUnavailable as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the engine host did not start in {_READY_SECONDS:g} s: {error.message}") from error
        await asyncio.sleep(0.05)


def fitted(steps: Sequence[StepRecord], lags_ns: Sequence[int]) -> EngineModel:
    """Fit an engine model to recorded steps. What lies between two steps of a busy engine belongs to the first.

    The fit is robust and so leaves out what a disturbed step took longer; the whole is scaled to take as long as the
    steps did. The wire takes half of what passes from a token's time in the engine until it is here, at the median.
    """
    samples = []
    for step, following in zip(steps, steps[1:], strict=False):
        between_ns = following.gap_ns if following.gap_cause != "idle" else 0
        rows = [StepRow(scheduled, context) for scheduled, context in zip(step.scheduled, step.context, strict=True)]
        samples.append(StepSample(step.busy_ns + between_ns, compose(rows), step.sequence))
    wire_ns = round(statistics.median(lags_ns) / 2) if lags_ns else 0
    model = fit(samples)
    predicted_ns = sum(model.predict_composition_ns(one.step) for one in samples)
    taken_ns = sum(one.busy_ns for one in samples)
    return EngineModel(model.scaled(taken_ns / predicted_ns), SEQUENCES, BATCH_TOKENS, wire_ns)
