"""A bare vLLM engine with our meter in its workers: what the host is compared with, and where steps are measured."""

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithms.gpu_time.step_model import StepRow
from backends.engine.step_book import QueueFacts, StepBook
from backends.engine.vllm_engine.metering.meter import MeterOptions, VllmMeter
from bench.gpu_runs import Answer, Run, recorded
from bench.gpu_steps import RecordedStep
from bench.gpu_workloads import Ask, Workload
from contracts.recording.records import StepRecord

_COLLECT_SECONDS = 0.05
_SETTLE_SECONDS = 2.0
WORKER = "bench.gpu_toggling_worker.TogglingWorker"
_FIRST_ID = 1 << 64  # beyond the ids that mean something


class BareEngine:
    """AsyncLLM and nothing around it. `metered`: with our worker, whose meter can be switched off between runs, and
    within answers where there is a GPU of one rank."""

    def __init__(self, model: Path, folder: Path, *, metered: bool, arguments: Mapping[str, Any]) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        self.book = StepBook(engine=f"bare/{model.name}", model=model.name, replica="bare", device="cuda:0")
        self.began_ns = time.time_ns()  # a hair after the book: no part of the life in it is missing
        self._meter: VllmMeter | None = None
        extra: dict[str, Any] = {}
        if metered:
            self._meter = VllmMeter(self.book, MeterOptions(model.name, directory=folder))
            self._meter.on_step(self._keep_rows)
            extra = {**self._meter.engine_args, "worker_cls": WORKER}
            self._meter.lifecycle("load")
        self._llm = AsyncLLM.from_engine_args(
            AsyncEngineArgs(model=str(model), load_format="dummy", **arguments, **extra),
            usage_context=UsageContext.OPENAI_API_SERVER,
        )
        if self._meter is not None:
            self._meter.lifecycle(None)
            self._meter.queue(time.monotonic_ns(), runnable=False)
        self._requests = 0
        self._running = 0
        self._ended: list[bytes] = []  # whose last steps are not in
        self._is_gathering = False
        self._steps: list[StepRecord] = []
        self._rows: dict[int, Sequence[StepRow]] = {}
        self.windows: list[tuple[str, int, int]] = []  # each run's name, beginning and end, Unix nanoseconds
        gc.collect()
        gc.freeze()  # vLLM's objects are there to stay; looking through them stops everything for 200 ms

    async def run(self, workload: Workload, *, held_back: bool = False) -> Run:
        """Ask all of a workload and wait for the answers. `held_back`: nothing is scheduled before all has arrived."""
        if held_back:
            await self._llm.pause_generation(mode="keep", clear_cache=False)
        began, began_ns = time.monotonic(), time.time_ns()
        limits = {tenant: asyncio.Semaphore(workload.concurrency) for tenant in workload.tenants}
        tasks = [asyncio.create_task(self._ask(ask, began, limits[ask.tenant])) for ask in workload.asks]
        if held_back:
            await asyncio.sleep(0.05)
            began_ns = time.time_ns()
            await self._llm.resume_generation()
        answers = list(await asyncio.gather(*tasks))
        ended_ns = time.time_ns()
        await self._settled()
        self.windows.append((workload.name, began_ns, ended_ns))
        steps = [one for one in self._steps if began_ns - one.gap_ns <= one.started_at_ns <= ended_ns]
        return Run(workload.name, answers, steps, began_ns, ended_ns, self._rows)

    async def set_metering(self, enabled: bool) -> None:
        """Switch the workers' meters."""
        await self._llm.collective_rpc("set_metering", args=(enabled,))

    async def toggle_metering(self, block_steps: int, *, begins_metered: bool) -> None:
        """Let the workers' meters go on and off within each answer, every given number of steps; 0 ends that."""
        await self._llm.collective_rpc("toggle_metering", args=(block_steps, begins_metered))

    async def forget_prefixes(self) -> None:
        """Empty the prefix cache, so that a run owes nothing to the one before."""
        await self._llm.reset_prefix_cache()

    async def sleep(self, level: int) -> None:
        """Put the engine to sleep."""
        assert self._meter is not None
        self._meter.lifecycle("sleep")
        await self._llm.sleep(level)

    async def wake(self) -> None:
        """Wake the engine."""
        assert self._meter is not None
        await self._llm.wake_up()
        self._meter.lifecycle(None)

    def take_steps(self) -> list[StepRecord]:
        """Return all records so far."""
        self._gather()
        return list(self._steps)

    def recorded_steps(self) -> list[RecordedStep]:
        """Return all steps so far, as recordings have them."""
        return recorded(self.take_steps(), self._rows)

    def facts(self) -> Mapping[str, Any]:
        """Return the meter's own counters."""
        return self._meter.facts() if self._meter is not None else {}

    @property
    def meter(self) -> VllmMeter:
        """Return the meter. Raises AssertionError without one."""
        assert self._meter is not None
        return self._meter

    def close(self) -> None:
        """Stop the engine and free its memory."""
        self._llm.shutdown()
        if self._meter is not None:
            self._meter.close()

    async def _ask(self, ask: Ask, began: float, limit: asyncio.Semaphore) -> Answer:
        wait = began + ask.start_seconds - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        async with limit:
            answer = Answer(time.monotonic())
            async for output in self._stream(ask):
                new = len(output.outputs[0].token_ids)
                if new:
                    answer.add(new, time.monotonic())
                    self._gather_soon()
            answer.ended = time.monotonic()
            return answer

    async def _stream(self, ask: Ask) -> Any:
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        sampling = SamplingParams(
            max_tokens=ask.output_tokens, ignore_eos=True, temperature=0.0, output_kind=RequestOutputKind.DELTA
        )
        self._requests += 1
        request_id = (self._requests + _FIRST_ID).to_bytes(16, "big")
        if self._meter is not None:
            if not self._running:
                self._meter.queue(time.monotonic_ns(), runnable=True)
            self._meter.begin(request_id, ask.tenant, len(ask.prompt))
        self._running += 1
        try:
            async for output in self._llm.generate(tokens_input(list(ask.prompt)), sampling, request_id.hex()):
                yield output
        finally:
            self._running -= 1
            if self._meter is not None:
                if not self._running:
                    self._meter.queue(time.monotonic_ns(), runnable=False)
                self._ended.append(request_id)

    async def _settled(self) -> None:
        """Wait until the workers have told of the last step."""
        if self._meter is None:
            return
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            await asyncio.sleep(_COLLECT_SECONDS)
            self._gather()
            if self._meter.is_quiet:
                return

    def _keep_rows(self, sequence: int, rows: Sequence[StepRow]) -> None:
        self._rows[sequence] = rows

    def _gather_soon(self) -> None:
        """Collect once a step's tokens have been taken, as a host does: while the next step runs."""
        if self._meter is not None and not self._is_gathering:
            self._is_gathering = True
            asyncio.get_running_loop().call_soon(self._gather)

    def _gather(self) -> None:
        self._is_gathering = False
        if self._meter is not None:
            self._meter.collect()
            settled = [one for one in self._ended if self._meter.is_settled(one)]
            for request_id in settled:
                self._meter.end(request_id, is_aborted=False)
                self._ended.remove(request_id)
            self._steps += self._meter.take(idle=not self._running, facts=QueueFacts(self._running, 0, 0, 0))
