"""Runs several prompts of one request concurrently at one engine host, and joins their answers and accounts."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from backends.llm.base import DeltaSink, ModelCall
from backends.llm.host_inputs.engine_prompt import Prompt
from contracts.api.generation import Delta, Result
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.ids import sibling_of
from contracts.recording.records import CountMethod, GpuShare

NOTHING_USED: Final = Result(
    usage=Usage(input_text=0, cache_read_text=0, output_text=0), count_method="exact", gap_clock="engine"
)

Generate = Callable[[ModelCall, Prompt, DeltaSink], Coroutine[Any, Any, Result]]


async def generate_all(call: ModelCall, prompts: Sequence[Prompt], sink: DeltaSink, generate: Generate) -> Result:
    """Call `generate` for each prompt concurrently. Choices are numbered in order of the prompts.

    If one fails or the call is cancelled, the others are cancelled and `sink` gets the account of all. Raises the first
    error.
    """
    batch = _Batch(call, sink, len(prompts))
    tasks: list[asyncio.Task[Result]] = []
    first_choice = 0
    for place, prompt in enumerate(prompts):
        part = batch.part(place, first_choice)
        tasks.append(asyncio.create_task(generate(part.call, prompt, part), name="completion prompt"))
        first_choice += prompt.sampling.n
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = [error for task in tasks if task.done() and (error := task.exception()) is not None]
        if errors:
            raise errors[0]
    except BaseException:  # in every case, stop the others, and account for all
        try:
            await _stop(tasks)
        finally:
            sink.account(batch.account(tasks))
        raise
    return _together([task.result() for task in tasks])


async def _stop(tasks: Sequence["asyncio.Task[Result]"]) -> None:
    """Cancel the tasks and wait for them: cancelled calls still find out their usage."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class _Batch:
    """State that the parts of one call share."""

    def __init__(self, call: ModelCall, sink: DeltaSink, prompts: int) -> None:
        self._call = call
        self._sink = sink
        self._parts: list[_Part] = []
        self._held: list[tuple[int, int]] = [(0, 0)] * prompts
        self._held_tokens = self._held_reasoning = 0
        self._is_paused = False
        self._flows: list[tuple[Callable[[], None], Callable[[], None]]] = []
        sink.attach_flow(self._pause, self._resume)

    def part(self, place: int, first_choice: int) -> "_Part":
        """Return the sink of one prompt, with its own call."""
        on_held = None if self._call.on_held is None else lambda *held: self._hold(place, *held)
        identifier = sibling_of(self._call.request_id, place)
        call = replace(
            self._call, request_id=identifier, booked_as=self._call.request_id, on_held=on_held, continuation=None
        )
        part = _Part(self, call, self._sink, first_choice)
        self._parts.append(part)
        return part

    def attach(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register a part's functions for pausing with the others."""
        self._flows.append((pause, resume))
        if self._is_paused:
            pause()

    def account(self, tasks: Sequence["asyncio.Task[Result]"]) -> Result:
        """Return the usage of all parts, including those that did not finish."""
        results: list[Result] = []
        for part, task in zip(self._parts, tasks, strict=True):
            is_whole = task.done() and not task.cancelled() and task.exception() is None
            results.append(task.result() if is_whole else part.used)
        return _together(results)

    def _pause(self) -> None:
        self._is_paused = True
        for pause, _ in self._flows:
            pause()

    def _resume(self) -> None:
        self._is_paused = False
        for _, resume in self._flows:
            resume()

    def _hold(self, place: int, tokens: int, reasoning: int) -> None:
        before, self._held[place] = self._held[place], (tokens, reasoning)
        self._held_tokens += tokens - before[0]
        self._held_reasoning += reasoning - before[1]
        if self._call.on_held is not None:
            self._call.on_held(self._held_tokens, self._held_reasoning)


class _Part:
    """The sink of one prompt, which renumbers its choices among those of all prompts."""

    def __init__(self, batch: _Batch, call: ModelCall, sink: DeltaSink, first_choice: int) -> None:
        self.call = call
        self.used = NOTHING_USED  # until it is submitted
        self._batch = batch
        self._sink = sink
        self._first_choice = first_choice

    def delta(self, delta: Delta) -> None:
        self._sink.delta(msgspec.structs.replace(delta, index=self._first_choice + delta.index))

    def account(self, result: Result) -> None:
        self.used = result

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.used = Result()
        self._batch.attach(pause, resume)

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        pass  # the usage of one prompt is not that of the request


def _together(results: Sequence[Result]) -> Result:
    """Add up results. If a part's usage is unknown, the sum is an estimate."""
    usage = UNKNOWN_USAGE
    for result in results:
        usage = usage.plus(result.usage)
    is_exact = all(result.count_method == "exact" for result in results)
    reasons = [result.finish_reason for result in results if result.finish_reason]
    named = next((result for result in results if result.model), results[0])
    return Result(
        usage=usage,
        count_method="exact" if is_exact else "estimate" if usage.is_known else "none",
        finish_reason="length" if "length" in reasons else reasons[0] if reasons else "",
        model=named.model,
        gap_clock=named.gap_clock,
        adapter=named.adapter,
        engine_output_tokens=_sum([result.engine_output_tokens for result in results]),
        recompute_tokens=_sum([result.recompute_tokens for result in results]),
        overrun_tokens=_sum([result.overrun_tokens for result in results]),
        wasted_tokens=_sum([result.wasted_tokens for result in results]),
        queue_ns=max((result.queue_ns for result in results if result.queue_ns is not None), default=None),
        cold_start_ns=max((one.cold_start_ns for one in results if one.cold_start_ns is not None), default=None),
        gpu=_shares_together([result.gpu for result in results if result.gpu is not None]),
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _shares_together(shares: list[GpuShare]) -> GpuShare | None:
    if not shares:
        return None
    return GpuShare(
        prefill_ns=sum(share.prefill_ns for share in shares),
        decode_ns=sum(share.decode_ns for share in shares),
        recompute_ns=sum(share.recompute_ns for share in shares),
        wasted_ns=sum(share.wasted_ns for share in shares),
        kv_block_seconds=sum(share.kv_block_seconds for share in shares),
        method=shares[0].method,
        confidence=min((share.confidence for share in shares if share.confidence is not None), default=None),
    )
