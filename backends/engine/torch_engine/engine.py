"""The engine: serves requests to one model, one step at a time.

`submit` and `abort` may be called from any thread; everything else by the stepping thread, or while it does not step.
The process, its sockets and its threads belong to the host.
"""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from backends.engine.kv_frames import CachedBlocks
from backends.engine.parsers.answer_format import AnswerFormat
from backends.engine.step_book import QueueFacts
from backends.engine.torch_engine.adapters import AdapterSet
from backends.engine.torch_engine.block_manager import BLOCK_SIZE, BlockManager
from backends.engine.torch_engine.constraint import GrammarCompiler
from backends.engine.torch_engine.decode_buffer import DecodeBuffer
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.torch_engine.inbox import Inbox
from backends.engine.torch_engine.intake import Intake
from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.torch_engine.kv_pool import KvPool
from backends.engine.torch_engine.model_files import read_model_files
from backends.engine.torch_engine.model_loader import find_device, kv_blocks, load_model
from backends.engine.torch_engine.model_runner import ModelRunner
from backends.engine.torch_engine.output import OutputMaker, finished, refused
from backends.engine.torch_engine.pinned_prefixes import PinnedPrefixes, pin_prefixes
from backends.engine.torch_engine.request_check import MAX_CHOICES, ModelLimits
from backends.engine.torch_engine.sampler import NO_TOKEN, ScoredToken, choose
from backends.engine.torch_engine.scheduler import Plan, Scheduler
from backends.engine.torch_engine.sequence import Request, Row, Sequence
from backends.engine.torch_engine.settings import EngineSettings
from backends.engine.torch_engine.step_meter import StepMeter
from contracts.engine.block_keys import public_hash
from contracts.engine.wire import Delta, Finished, FinishReason, ModelHello, Sampling, Submit
from contracts.errors import ConfigurationError, InvalidRequest, TollkeeperError, Unavailable, UpstreamTimeout
from contracts.recording.records import KvRecord, StepRecord

_log = logging.getLogger(__name__)

Event = Delta | Finished
_WARMUP_TOKENS = 8
_MAX_FAILED_STEPS = 8  # in a row


class TorchEngine:
    """One model on one device. Raises ConfigurationError if the model is unsupported or the memory is insufficient."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        torch.set_num_threads(settings.threads or max(1, (os.cpu_count() or 1) // 2))
        self._now_ns = time.monotonic_ns
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        device = find_device(settings)
        self._meter = StepMeter(
            settings.engine, settings.name, settings.replica, device, self._now_ns, wall_offset_ns, settings.metering
        )
        self._meter.lifecycle("load")
        self._files = read_model_files(settings.path)
        loaded = load_model(self._files, settings)
        blocks, buffer_bytes = kv_blocks(loaded, settings)
        self._loaded = loaded
        self._kv_log = KvEventLog(
            settings.engine, settings.name, settings.replica, BLOCK_SIZE,
            "gpu" if device.type == "cuda" else "cpu", time.time_ns,
        )  # fmt: skip
        self.blocks = BlockManager(blocks, on_change=self._kv_log.note)
        pool = KvPool(loaded.kv, blocks, loaded.device)
        self._buffer = DecodeBuffer(pool, buffer_bytes)
        self._adapters = AdapterSet(loaded.module, loaded.device, loaded.kv.dtype)
        self._runner = ModelRunner(loaded, pool, self._buffer, self.blocks, self._adapters)
        self._pins = PinnedPrefixes(self.blocks)
        self.scheduler = Scheduler(
            self.blocks, settings.max_batch_tokens, settings.max_sequences, give_up=self._pins.give_up
        )
        vocabulary = Vocabulary(self._files.tokenizer)
        self._weights_hash = self._files.weights_hash()
        self._intake = Intake(
            ModelLimits(
                settings.name, loaded.vocabulary, loaded.context_tokens, MAX_CHOICES,
                self._files.tokenizer_hash, self._files.template_hash,
            ),
            vocabulary,
            GrammarCompiler(self._files.tokenizer, loaded.vocabulary, self._files.eos_token_ids),
            self._files.eos_token_ids,
            AnswerFormat.of(self._files.chat_template, settings.reasoning_tags, settings.tool_parser),
            settings.prefix_cache,
        )  # fmt: skip
        self._output = OutputMaker(vocabulary, frozenset(self._files.eos_token_ids), loaded.context_tokens)
        self._inbox: Inbox[Request] = Inbox()
        self._requests: dict[bytes, Request] = {}
        self._has_deadlines = False
        self._accrued_ns = self._now_ns()
        self._steps = 0
        self._failed_steps = 0  # since the last successful step
        self._prefix_queries = self._prefix_hits = 0  # prompt tokens, at each request's first admission
        for name, path in settings.adapters:
            self.load_adapter(name, path)
        self._meter.queue(self._now_ns(), runnable=False)
        self._meter.lifecycle(None)

    # For any thread.

    def submit(self, submit: Submit) -> None:
        """Accept a request; errors are reported in its `Finished`. Compiles its grammar, so it may block."""
        if not self._inbox.reserve(submit.request_id):
            # Not answered with `Finished`: that would end the request in progress with the same id.
            _log.warning("request refused request_id=%s reason=id_in_use", submit.request_id.hex())
            return
        try:
            request = self._intake.accept(submit, self._adapters.names, self._now_ns())
        except TollkeeperError as error:
            self._inbox.refuse(refused(submit.request_id, error))
        else:
            self._inbox.accept(request)

    def abort(self, request_id: bytes) -> None:
        """End a request at the next step, in any state; an unknown or finished one is ignored."""
        self._inbox.abort(request_id)

    @property
    def has_work(self) -> bool:
        """Return whether `step` would compute or return anything."""
        return not self._inbox.is_empty or self.scheduler.has_work

    # For the stepping thread.

    def step(self) -> list[Event]:
        """Compute one step and return its output, in order. If nothing can be computed, return refusals and
        ends only.
        """
        events = self._receive()
        self._pins.expire(self._now_ns())
        plan = self.scheduler.plan()
        for sequence in plan.preempted:
            self._runner.release(sequence.handle)
        if plan.rows:
            events += self._compute(plan)
        if not self.scheduler.has_work:
            self._meter.queue(self._now_ns(), runnable=False)
        return events

    def warm_up(self) -> None:
        """Run a prompt and a few decode steps, so that the first request is not slowed by one-time initialisation."""
        self._meter.lifecycle("warmup")
        enabled, self._meter.enabled = self._meter.enabled, False
        request = Submit(
            request_id=b"\0warm-up", model=self.settings.name, token_ids=[0] * BLOCK_SIZE,
            sampling=Sampling(max_tokens=_WARMUP_TOKENS, temperature=0.0, ignore_eos=True),
        )  # fmt: skip
        self.submit(request)
        while self.has_work:
            self.step()
        self.blocks.clear()
        self._kv_log.take()
        self._prefix_queries = self._prefix_hits = 0
        self._meter.enabled = enabled
        self._meter.lifecycle(None)

    def load_adapter(self, name: str, path: Path) -> None:
        """Load a LoRA adapter under a name. Raises ConfigurationError if it does not fit or the name is in use by
        requests.
        """
        if not name or (name in self._adapters and self._is_using(name)):
            raise ConfigurationError(f"adapter name {name!r} is empty or in use by a running request")
        self._adapters.load(name, path)
        self._forget_cache_of(name)

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter. Raises ConfigurationError if it is not loaded or requests use it."""
        if self._is_using(name):
            raise ConfigurationError(f"adapter {name!r} is in use by a running request")
        self._adapters.unload(name)
        self._forget_cache_of(name)

    def hello(self) -> ModelHello:
        """Return the description of the model."""
        return ModelHello(
            id=self.settings.name,
            weights_hash=self._weights_hash,
            tokenizer_hash=self._files.tokenizer_hash,
            template_hash=self._files.template_hash,
            tokenizer=self._files.tokenizer,
            chat_template=self._files.chat_template,
            special_tokens=self._files.special_tokens,
            eos_token_ids=list(self._files.eos_token_ids),
            context_tokens=self._loaded.context_tokens,
            block_size=BLOCK_SIZE,
            kv_blocks=self.blocks.total,
            vocabulary=self._loaded.vocabulary,
            adapters=self._adapters.names,
        )

    def set_metering(self, enabled: bool) -> None:
        """Start or stop measuring and recording steps; time without metering is recorded with an unknown cause."""
        self._meter.settle()
        self._meter.enabled = enabled

    def take_steps(self) -> list[StepRecord]:
        """Return the step records since the last call; an idle engine writes its idle time at growing intervals.

        Records of the last tenth of a second may be returned by a later call, at the latest when nothing runs.
        """
        return self._meter.take(idle=not self.has_work, facts=self._facts())

    def take_kv_events(self) -> list[KvRecord]:
        """Return the KV cache's changes since the last call; removals are batched, up to 0.25 s later under load."""
        return self._kv_log.take(more_follows=self.has_work)

    def cached_blocks(self) -> CachedBlocks:
        """Return the cache's current content, and the sequence of the next event."""
        hashes = [public_hash(key) for key in self.blocks.cached_keys()]
        return CachedBlocks(self._kv_log.engine, self._kv_log.sequence, self._kv_log.block_size, hashes)

    def stats(self) -> dict[str, float | int | str | bool | None]:
        """Return the engine's counters and gauges."""
        counts = self.blocks.counts()
        return {
            "running": len(self.scheduler.running),
            "waiting": self.scheduler.waiting,
            "max_sequences": self.scheduler.max_sequences,
            "kv_blocks_total": counts.total,
            "kv_blocks_held": counts.held,
            "kv_blocks_cached": counts.cached,
            "kv_blocks_kept": len(self._pins),
            "kv_blocks_given_up": self._pins.given_up,
            "prefix_cache_queries": self._prefix_queries,
            "prefix_cache_hits": self._prefix_hits,
            "decode_rows": len(self._buffer),
            "decode_buffer_bytes": self._buffer.allocated_bytes,
            "preemptions": self.scheduler.preemptions,
            "steps": self._steps,
            "busy_ns": self._meter.busy_ns,
            "step_fit_version": self._meter.fitter.model.version,
            "step_fit_drifting": self._meter.fitter.drift.is_raised,
        }

    def close(self) -> None:
        """Stop background tasks."""
        self._meter.close()

    # Parts of a step.

    def _receive(self) -> list[Event]:
        """Accept requests from other threads, and end aborted and expired ones."""
        mail = self._inbox.take(self._requests)
        events: list[Event] = list(mail.refused)
        if mail.accepted and not self.scheduler.has_work:
            self._meter.queue(mail.accepted[0].arrived_ns, runnable=True)
        for request in mail.accepted:
            self._requests[request.submit.request_id] = request
            self._has_deadlines |= request.submit.deadline_ns is not None
            first = request.sequences[0]
            lack = self._adapters.lack_of(request.submit.adapter)  # it may have been unloaded meanwhile
            if lack is not None or first.outputs >= request.max_tokens:
                events.append(self._end(request, "length" if lack is None else "error", lack))
            else:
                self.scheduler.add(first)
        for request_id in mail.aborted:
            unwanted = self._requests.get(request_id)
            if unwanted is not None:
                events.append(self._end(unwanted, "abort"))
        if self._has_deadlines:
            events += self._late()
        return events

    def _late(self) -> Iterator[Finished]:
        now = self._now_ns()
        late = [
            request
            for request in self._requests.values()
            if request.submit.deadline_ns is not None and request.submit.deadline_ns <= now
        ]
        self._has_deadlines = any(request.submit.deadline_ns is not None for request in self._requests.values())
        for request in late:
            error = UpstreamTimeout("the request's deadline passed before its answer was complete")
            yield self._end(request, "error", error)

    def _compute(self, plan: Plan) -> list[Event]:
        for row in plan.rows:
            request = row.sequence.request
            if request.scheduled_ns is None:
                request.scheduled_ns = self._now_ns()
            if request.cached_tokens is None:
                request.cached_tokens = row.sequence.cached
                if self.settings.prefix_cache:
                    self._prefix_queries += len(row.sequence.token_ids)
                    self._prefix_hits += row.sequence.cached
        self._steps += 1
        self._meter.begin()
        try:
            sampling, logits = self._runner.execute(plan.rows)
            sequences = self._settle(plan.rows, sampling)
            places = torch.tensor([place for _, place in sequences], dtype=torch.long, device=logits.device)
            if len(sequences) != len(sampling):
                logits = logits.index_select(0, places)
            chosen = choose(
                logits,
                [sequence.sampling for sequence, _ in sequences],
                [sequence.constraint for sequence, _ in sequences],
            )
        except Exception as error:  # any error ends only the requests of this step
            return self._fail(plan.rows, error)
        self._failed_steps = 0
        self._meter.end(plan.rows, self._facts())
        self._account(plan.rows)
        now = self._now_ns()
        events: list[Event] = []
        for (sequence, _), token_id, score in zip(sequences, chosen.token_ids, chosen.scores, strict=True):
            events += self._advance(sequence, token_id, score, now)
        return events

    def _advance(self, sequence: Sequence, token_id: int, score: ScoredToken | None, now_ns: int) -> list[Event]:
        """Append a token to a sequence. An error here ends only this request; the step's others continue."""
        request = sequence.request
        if self._requests.get(request.submit.request_id) is not request:
            return []  # another choice has ended the request in this step
        if token_id == NO_TOKEN:
            error = Unavailable("the model computed no finite logits for this request", code="engine_failure")
            _log.error("logits not finite model=%s request_id=%s", self.settings.name, request.submit.request_id.hex())
            return [self._end(request, "error", error)]
        try:
            delta = self._output.advance(sequence, token_id, score, now_ns)
        except Exception as error:
            return self._fail_requests([request], error)
        return [delta, *(self._ended(sequence) if sequence.finish_reason is not None else ())]

    def _settle(self, rows: list[Row], sampling: list[Row]) -> list[tuple[Sequence, int]]:
        """Record computed tokens and create forks. Return the sequences that sample, with the row of their logits."""
        for row in rows:
            sequence = row.sequence
            sequence.computed = row.start + row.count
            if self.settings.prefix_cache and sequence.computed // BLOCK_SIZE > row.start // BLOCK_SIZE:
                sequence.keys.extend(sequence.token_ids)
                self.blocks.publish(sequence.handle, sequence.keys.keys, sequence.computed)
            if sequence.request.submit.kept_prefixes and self.settings.prefix_cache:
                pin_prefixes(self._pins, sequence, self._now_ns())
        choosing: list[tuple[Sequence, int]] = []
        for place, row in enumerate(sampling):
            choosing.append((row.sequence, place))
            request = row.sequence.request
            if request.submit.sampling.n > 1 and not request.is_forked:
                request.is_forked = True
                choosing += [(sequence, place) for sequence in self._fork(row.sequence)]
        return choosing

    def _fork(self, first: Sequence) -> list[Sequence]:
        """Create a request's other choices; return those that run at once. The rest is queued, and will hit
        the cache.
        """
        self._runner.settle(first)
        running = []
        for sequence in self._intake.siblings(first):
            pairs = self.blocks.fork(first.handle, sequence.handle, first.computed)
            if pairs is None:
                self.scheduler.add(sequence)
            elif not self.scheduler.adopt(sequence):
                self.blocks.free(sequence.handle)
                self.scheduler.add(sequence)
            else:
                self._runner.copy_blocks(pairs)
                sequence.computed = sequence.cached = sequence.high_water = first.computed
                running.append(sequence)
        return running

    def _account(self, rows: list[Row]) -> None:
        """Add the step's recomputed tokens and the block time to each request."""
        for row in rows:
            sequence = row.sequence
            sequence.request.recompute_tokens += row.recompute
            sequence.high_water = max(sequence.high_water, sequence.computed)
        before, self._accrued_ns = self._accrued_ns, self._now_ns()
        for sequence in self.scheduler.running:
            request = sequence.request
            held_ns = self._accrued_ns - max(before, request.scheduled_ns or 0)
            request.kv_block_ns += len(self.blocks.table(sequence.handle)) * held_ns

    def _ended(self, sequence: Sequence) -> list[Event]:
        """Release an ended choice's slot and blocks; return the account if it was the request's last choice."""
        self._drop(sequence)
        request = sequence.request
        if sequence.finish_reason == "error":
            return [self._end(request, "error", _grammar_fault(sequence))]
        if not request.is_done:
            return []
        return [self._end(request, request.sequences[0].finish_reason or "stop")]

    def _drop(self, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        self._runner.release(sequence.handle)

    def _end(self, request: Request, reason: FinishReason, error: TollkeeperError | None = None) -> Finished:
        """Remove a request completely and return its account."""
        self._meter.settle()
        for sequence in request.sequences:
            self._drop(sequence)
        del self._requests[request.submit.request_id]
        self._inbox.forget(request.submit.request_id)
        return finished(request, reason, error)

    def _fail(self, rows: list[Row], error: Exception) -> list[Event]:
        """End every request of a failed step; others continue.

        Raises Unavailable after several failed steps in a row: the engine is unusable then, and its host loads the
        model again, which ends all requests.
        """
        self._failed_steps += 1
        if self._failed_steps >= _MAX_FAILED_STEPS:
            raise Unavailable(f"{self._failed_steps} steps in a row failed") from error
        requests = {id(row.sequence.request): row.sequence.request for row in rows}
        return self._fail_requests(list(requests.values()), error)

    def _fail_requests(self, requests: list[Request], error: Exception) -> list[Event]:
        cause = str(error).partition("\n")[0][:200]  # torch's first line names shapes and sizes, never content
        _log.error(
            "step failed model=%s requests=%d error=%s cause=%s",
            self.settings.name, len(requests), type(error).__name__, cause,
        )  # fmt: skip
        reason = Unavailable("the engine could not compute a step of this request", code="engine_failure")
        return [self._end(request, "error", reason) for request in requests]

    def _forget_cache_of(self, adapter: str) -> None:
        """Remove blocks that were computed with an adapter of this name, since keys contain its name instead of its
        weights.
        """
        keys = self.blocks.keys_of_adapter(adapter)
        self._pins.forget(keys)
        self.blocks.forget(keys)

    def _is_using(self, adapter: str) -> bool:
        return any(request.submit.adapter == adapter for request in self._requests.values())

    def _facts(self) -> QueueFacts:
        total, running = self.blocks.total, len(self.scheduler.running)
        return QueueFacts(running, self.scheduler.waiting, total - self.blocks.available, total)


def _grammar_fault(sequence: Sequence) -> TollkeeperError:
    """Return the error of an output that left its grammar: the matcher failed, or there is a defect."""
    grammar = sequence.request.submit.grammar
    if grammar is None or sequence.constraint is None or not sequence.constraint.is_too_complex:
        return Unavailable("the output does not match its grammar")
    return InvalidRequest(
        f"the {grammar.kind} has too many alternatives to be followed; make it smaller", code="invalid_grammar"
    )
