"""The engine for vLLM: serves requests to one model. vLLM's event loop runs during `step`, in the same thread.

`submit` and `abort` may be called from any thread; everything else by the stepping thread.
"""

import gc
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from backends.engine.base import EngineEvent, Facts
from backends.engine.kv_frames import CachedBlocks
from backends.engine.torch_engine.inbox import Inbox
from backends.engine.torch_engine.output import refused
from backends.engine.vllm_engine.adapter_set import AdapterSet
from backends.engine.vllm_engine.embedding import Embeddings
from backends.engine.vllm_engine.failures import engine_died, request_failure
from backends.engine.vllm_engine.gauges import Gauges
from backends.engine.vllm_engine.generation import Generation
from backends.engine.vllm_engine.intake import Intake
from backends.engine.vllm_engine.kv_events.source import KvSource, NoKvEvents
from backends.engine.vllm_engine.llm_client import LlmClient, LlmOutput, LlmVector
from backends.engine.vllm_engine.step_metering import Account, StepMetering
from contracts.engine.wire import Embed, FinishReason, ModelHello, Sampling, Submit
from contracts.errors import TollkeeperError, Unavailable, UpstreamTimeout
from contracts.recording.records import KvRecord, StepRecord

_log = logging.getLogger(__name__)

# How long a request's end is delayed until its last steps are measured. A step with 8,192 prompt tokens takes 0.3 s for
# an 8B model on an H200, and two of them may be in progress.
_SETTLE_NS: Final = 2_000_000_000
_ABORT_SETTLE_NS: Final = 10_000_000_000
_LOOK_NS: Final = 2_000_000  # interval of checks for that
_WARMUP_ID: Final = bytes(15) + b"\1"
_WARMUP_PROMPT: Final = 16
_WARMUP_TOKENS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """A request that has ended, and whose account is not complete yet; `tell` builds its last event."""

    request_id: bytes
    tell: Callable[[Account], EngineEvent]
    until_ns: int
    is_aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components of an engine."""

    client: LlmClient
    hello: ModelHello
    intake: Intake
    adapters: AdapterSet
    metering: StepMetering
    gauges: Gauges
    kv: KvSource = field(default_factory=NoKvEvents)
    weights_hash: Callable[[], str] = field(default=lambda: "")


class VllmEngine:
    """One model. `step` raises Unavailable if vLLM's process has died; nothing can be served any more then."""

    def __init__(self, parts: Parts) -> None:
        self._client = parts.client
        self._hello = parts.hello
        self._intake = parts.intake
        self._adapters = parts.adapters
        self._metering = parts.metering
        self._gauges = parts.gauges
        self._kv = parts.kv
        self._weights_hash = parts.weights_hash
        self._inbox: Inbox[Generation] = Inbox()
        self._embeddings = Embeddings(parts.client, parts.hello, parts.metering, self._conclude)
        self._generations: dict[bytes, Generation] = {}
        self._endings: list[Ending] = []
        self._unconfirmed: set[bytes] = set()  # aborted requests that vLLM may still schedule
        self._is_looking = False
        self._events: list[EngineEvent] = []
        self._is_asleep = False

    # For any thread.

    def submit(self, submit: Submit) -> None:
        """Accept a request; errors are reported in its `Finished`."""
        if not self._inbox.reserve(submit.request_id):
            # Not answered with `Finished`: that would end the request in progress with the same id.
            _log.warning("request refused request_id=%s reason=id_in_use", submit.request_id.hex())
            return
        try:
            generation = self._intake.accept(submit, self._adapters.by_name, time.monotonic_ns())
        except TollkeeperError as error:
            self._inbox.refuse(refused(submit.request_id, error))
        else:
            self._inbox.accept(generation)
        self._client.wake()

    def abort(self, request_id: bytes) -> None:
        """End a request at the next step, in any state; an unknown or finished one is ignored."""
        self._inbox.abort(request_id)
        self._embeddings.abort(request_id)
        self._client.wake()

    def embed(self, embed: Embed) -> None:
        """Accept inputs to embed. Raises InvalidRequest if they exceed a limit."""
        self._embeddings.accept(embed)
        self._client.wake()

    @property
    def has_work(self) -> bool:
        """Return whether any request or event is pending."""
        return bool(
            self._generations
            or self._endings
            or self._events
            or not self._inbox.is_empty
            or self._embeddings.has_work
            or self._client.is_dead
        )

    @property
    def can_sleep(self) -> bool:
        """Return whether vLLM was started with sleep mode."""
        return self._client.can_sleep

    # For the stepping thread.

    def step(self) -> list[EngineEvent]:
        """Wait until vLLM has output, and return it. Raises Unavailable if vLLM has died."""
        self._receive()
        self._metering.collect()  # before waiting, while the GPU computes
        self._settle()
        if not self._events:
            self._client.run_until(self._has_news)
        if self._client.is_dead:
            raise engine_died(self._hello.id)
        events, self._events = self._events, []
        if not self._is_busy:
            self._gauges.rest()
            self._metering.queue(time.monotonic_ns(), runnable=False)
        return events

    def warm_up(self) -> None:
        """Run a short request, so that the first real one is not slowed by one-time initialisation."""
        if self._hello.kind == "embed":
            return
        self._metering.lifecycle("warmup")
        sampling = Sampling(max_tokens=_WARMUP_TOKENS, temperature=0.0, ignore_eos=True)
        for adapter in ("", *list(self._adapters.by_name)[:1]):  # an adapter's first use compiles its kernels
            ids = [0] * _WARMUP_PROMPT
            self.submit(
                Submit(request_id=_WARMUP_ID, model=self._hello.id, token_ids=ids, sampling=sampling, adapter=adapter)
            )
            while self.has_work:
                self.step()
        self._client.run(self._client.reset_prefix_cache())
        self._kv.forget()
        gc.collect()
        gc.freeze()  # else each full collection would scan vLLM's permanent objects, stopping all streams for 200 ms
        self._metering.lifecycle(None)

    def load_adapter(self, name: str, path: Path) -> None:
        """Load a LoRA adapter under a name. Raises ConfigurationError if it does not fit or the name is in use."""
        self._client.run(self._adapters.load(name, path, is_in_use=self._is_using(name)))

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter. Raises ConfigurationError if it is not loaded or requests use it."""
        self._client.run(self._adapters.unload(name, is_in_use=self._is_using(name)))

    def hello(self) -> ModelHello:
        """Return the description of the model."""
        return msgspec.structs.replace(
            self._hello, weights_hash=self._weights_hash(), adapters=list(self._adapters.by_name)
        )

    def take_steps(self) -> list[StepRecord]:
        """Return the step records since the last call; an idle engine writes its idle time at growing intervals."""
        idle = not self.has_work
        if idle:
            self._metering.collect()
        return self._metering.take(idle=idle, facts=self._gauges.queue_facts())

    def take_kv_events(self) -> list[KvRecord]:
        """Return the KV cache's changes since the last call; removals are batched, up to 0.25 s later under load."""
        return self._kv.take(more_follows=self.has_work)

    def cached_blocks(self) -> CachedBlocks:
        """Return the cache's content. Raises Unavailable if vLLM does not report its cache."""
        return self._kv.cached_blocks()

    def stats(self) -> Facts:
        """Return the engine's counters and gauges."""
        return {
            **self._gauges.facts(),
            "requests_at_vllm": len(self._generations),
            "adapters_loaded": len(self._adapters.by_name),
            "asleep": self._is_asleep,
            **self._kv.facts(),
            **self._metering.facts(),
        }

    def sleep(self, level: int) -> None:
        """Release GPU memory: at level 1 weights move to host memory, at level 2 they are dropped.

        Weights that vLLM cannot reload (random ones, or of a model with adapters) are kept at level 2 too. No request
        may be running. Needs vLLM's `--enable-sleep-mode`.
        """
        self._metering.lifecycle("sleep")
        self._client.run(self._client.sleep(level))
        self._kv.forget()
        self._is_asleep = True

    def wake(self) -> None:
        """Restore GPU memory; dropped weights are read from disk."""
        self._client.run(self._client.wake_up())
        self._is_asleep = False
        self._metering.lifecycle(None)

    def close(self) -> None:
        """End vLLM's processes, which frees the model's GPU memory."""
        self._client.close()
        self._kv.close()
        self._metering.collect()
        self._metering.close()

    # Parts of a step.

    @property
    def _is_busy(self) -> bool:
        return bool(self._generations) or self._embeddings.has_work

    def _has_news(self) -> bool:
        return bool(self._events) or not self._inbox.is_empty or self._embeddings.has_mail or self._is_due()

    def _is_due(self) -> bool:
        if not self._endings:
            return False
        now = time.monotonic_ns()
        self._metering.collect()
        return any(now >= ending.until_ns or self._is_settled(ending) for ending in self._endings)

    def _is_settled(self, ending: Ending) -> bool:
        """Return whether all steps of an ended request are measured, including those scheduled before vLLM received its
        abort.
        """
        return ending.request_id not in self._unconfirmed and self._metering.is_settled(ending.request_id)

    def _receive(self) -> None:
        """Accept requests from other threads."""
        if not self._inbox.is_empty:
            mail = self._inbox.take(self._generations)
            self._events += mail.refused
            if mail.accepted and not self._is_busy:
                self._metering.queue(mail.accepted[0].arrived_ns, runnable=True)
            for generation in mail.accepted:
                self._begin(generation)
            for request_id in mail.aborted:
                unwanted = self._generations.get(request_id)
                if unwanted is not None:
                    self._end(unwanted, "abort")
        if self._embeddings.has_mail:
            if not self._is_busy:
                self._metering.queue(time.monotonic_ns(), runnable=True)
            self._embeddings.receive()

    def _begin(self, generation: Generation) -> None:
        submit = generation.submit
        self._generations[submit.request_id] = generation
        if generation.choices[0].outputs >= submit.sampling.max_tokens:
            self._end(generation, "length")
            return
        if submit.deadline_ns is not None:
            generation.drop_deadline = self._client.at(submit.deadline_ns, partial(self._late, generation))
        prompt_tokens = len(generation.request.prompt.token_ids)
        self._metering.begin(submit.request_id, submit.tenant, prompt_tokens, submit.payer_id)
        self._kv.note_salt(submit.cache_salt, submit.tenant)
        generation.is_at_vllm = True
        self._client.add(generation.request, partial(self._on_output, generation))

    def _on_output(self, generation: Generation, output: LlmOutput | LlmVector | BaseException) -> None:
        if generation.is_over:
            if not isinstance(output, BaseException):
                generation.surplus += sum(len(one.token_ids) for one in getattr(output, "outputs", ()))
            return
        if isinstance(output, BaseException):
            generation.error, generation.is_at_vllm = request_failure(output, has_begun=generation.generated > 0)
            self._end(generation, "error")
            return
        assert not isinstance(output, LlmVector)
        deltas = generation.deltas(output, time.monotonic_ns())
        self._events += deltas
        if not generation.has_ended_choice:
            return
        if generation.is_complete:
            self._end(generation, generation.choices[0].reason or "stop", is_done=output.finished)
        else:
            for delta in deltas:
                if delta.stop:  # we detect stop strings; vLLM would continue this choice
                    self._client.abort(generation.request.name, delta.index)

    def _late(self, generation: Generation) -> None:
        generation.error = UpstreamTimeout("the request's deadline passed before its answer was complete")
        self._end(generation, "error")

    def _end(self, generation: Generation, reason: FinishReason, *, is_done: bool = False) -> None:
        """End a generation. With `is_done`, vLLM has ended it, and needs no abort."""
        if generation.is_over:
            return
        generation.is_over = True
        generation.drop_deadline()
        if reason == "error" and generation.error is None:
            generation.error = Unavailable("vLLM could not compute a step of this request", code="engine_failure")
        request_id = generation.submit.request_id
        if generation.is_at_vllm and not is_done:
            self._unconfirmed.add(request_id)
            self._client.abort(generation.request.name, then=partial(self._unconfirmed.discard, request_id))
        self._conclude(request_id, partial(generation.finished, reason), is_aborted=reason == "abort")

    def _conclude(self, request_id: bytes, tell: Callable[[Account], EngineEvent], *, is_aborted: bool) -> None:
        until_ns = time.monotonic_ns() + (_ABORT_SETTLE_NS if is_aborted else _SETTLE_NS)
        self._endings.append(Ending(request_id, tell, until_ns, is_aborted))
        self._look_soon()

    def _look_soon(self) -> None:
        """Schedule another check of pending accounts: without running requests, nothing else wakes `step`."""
        if self._endings and not self._is_looking:
            self._is_looking = True
            self._client.at(time.monotonic_ns() + _LOOK_NS, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        self._look_soon()

    def _settle(self) -> None:
        """Report the accounts that are complete, or whose time limit has passed."""
        if not self._endings:
            return
        now = time.monotonic_ns()
        waiting: list[Ending] = []
        for ending in self._endings:
            if now < ending.until_ns and not self._is_settled(ending):
                waiting.append(ending)
                continue
            self._unconfirmed.discard(ending.request_id)
            if self._generations.pop(ending.request_id, None) is not None:
                self._inbox.forget(ending.request_id)
            account = self._metering.end(ending.request_id, is_aborted=ending.is_aborted)
            self._events.append(ending.tell(account))
        self._endings = waiting

    def _is_using(self, adapter: str) -> bool:
        return any(generation.submit.adapter == adapter for generation in self._generations.values())
