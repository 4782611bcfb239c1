"""Read a step's composition from the scheduler's output: sequences, tokens, kinds.

Accesses vLLM's `SchedulerOutput` by field names only, so it runs and is tested without vLLM.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from algorithms.gpu_time.step_model import DECODE, ENCODE, PREFILL
from backends.engine.vllm_engine.metering.composition import Composition, Repeat, Steady, SteadyRun
from backends.engine.vllm_engine.metering.frames import Begun, Ended

# Share of the reading time that is saved for a key that another row of the step has read: it is in the GPU's cache.
# Measured on decode steps of 32 sequences with 3,000 tokens in common, an 8B Llama shape on an H200, vLLM 0.25.1,
# 2026-11-21 (0.45 to 0.5).
_SAVED_BY_SHARING: Final = 0.45
TENANT_ARGUMENT: Final = "tollkeeper_tenant"  # of SamplingParams.extra_args, in requests to a metered `vllm serve`


class NewRequest(Protocol):
    """vLLM's NewRequestData."""

    req_id: str
    prompt_token_ids: list[int] | None
    prefill_token_ids: list[int] | None
    num_computed_tokens: int
    block_ids: Sequence[Sequence[int]]
    sampling_params: Any
    mm_features: Any
    prompt_embeds: Any


class CachedRequests(Protocol):
    """vLLM's CachedRequestData."""

    req_ids: list[str]
    resumed_req_ids: set[str]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]


class ScheduledBatch(Protocol):
    """vLLM's SchedulerOutput."""

    scheduled_new_reqs: Sequence[Any]  # NewRequest
    scheduled_cached_reqs: Any  # CachedRequests
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]]
    scheduled_encoder_inputs: Mapping[str, Sequence[int]]
    finished_req_ids: set[str]


@dataclass(slots=True)
class _Sequence:
    key: int
    prefill_until: int  # tokens before this position are prefill: the prompt, or what a preemption discarded
    encoder_tokens: list[int]
    computed: int = 0  # the highest position computed, drafts left out
    recompute_until: int = 0
    last_step: int = 0
    last_batch: int = 0
    hit_tokens: int = 0
    hit_block: int = -1  # last block of its prefix hit; sequences with the same one read the same keys


class BatchReader:
    """Tracks one engine's sequences through its batches, which must come in order, including empty ones.

    `depth` is the number of batches that the engine keeps in flight. If a sequence ends fewer than `depth` batches
    after
    its last one, that batch was still running, and its output for the sequence is discarded.
    """

    def __init__(self, depth: int = 1, block_size: int = 16) -> None:
        self._depth = depth
        self._block_size = block_size
        self._hitters: Counter[int] = Counter()  # sequences by the last block of their hit
        self._batches = 0
        self._steps = 0
        self._keys = 0
        self._sequences: dict[str, _Sequence] = {}
        self._recent: dict[int, Composition | Repeat] = {}
        self._steady = Steady()
        self.begun: list[Begun] = []
        self.ended: list[Ended] = []

    def read(self, batch: ScheduledBatch) -> Composition | Repeat | None:
        """Return a batch's composition, or `None` if it computes nothing. Extends `begun` and `ended`."""
        if self.is_steady(batch):
            return self.steady_step()
        self._batches += 1
        self._catch_up()
        for name in batch.finished_req_ids:
            self._end(name)
        for new in batch.scheduled_new_reqs:
            self._begin(new)
        self._resume(batch.scheduled_cached_reqs)
        if not batch.total_num_scheduled_tokens:
            return None
        composition = self.dummy()
        self._fill(composition, batch)
        self._expect_steady(composition, batch)
        return composition

    def dummy(self) -> Composition:
        """Return the empty composition of a dummy step, which computes for no request."""
        self._steps += 1
        composition = self._recent[self._steps] = Composition(self._steps)
        self._recent.pop(self._steps - self._depth - 1, None)
        return composition

    def is_steady(self, batch: ScheduledBatch) -> bool:
        """Return whether a batch decodes one token for exactly the sequences of the last one, as most batches do."""
        steady = self._steady
        if not steady.names:
            return False
        cached = batch.scheduled_cached_reqs
        return bool(
            cached.req_ids == steady.names
            and not batch.scheduled_new_reqs
            and not batch.finished_req_ids
            and not batch.scheduled_spec_decode_tokens
            and not batch.scheduled_encoder_inputs
            and not cached.resumed_req_ids
            and batch.total_num_scheduled_tokens == len(batch.num_scheduled_tokens)
            and sum(cached.num_computed_tokens) == steady.total + (steady.ahead + 1) * len(steady.names)
        )

    def steady_step(self) -> Repeat:
        """Return the composition of a steady batch. Sequences are updated only when the batch changes."""
        steady = self._steady
        self._batches += 1
        self._steps = number = self._steps + 1
        steady.ahead += 1
        steady.step, steady.batch = number, self._batches
        step = self._recent[number] = Repeat(number, steady, steady.ahead)
        self._recent.pop(number - self._depth - 1, None)
        return step

    def steady_run(self, count: int) -> SteadyRun:
        """Return the compositions of `count` consecutive steady batches."""
        steady, first = self._steady, self._steps + 1
        self._batches += count
        self._steps += count
        steady.ahead += count
        steady.step, steady.batch = self._steps, self._batches
        run = SteadyRun(first, count, steady)
        for number in range(max(first, self._steps - self._depth), self._steps + 1):
            self._recent[number] = run.recent[number] = run.at(number)
        for number in [known for known in self._recent if known < self._steps - self._depth]:
            del self._recent[number]
        return run

    def awaited(self) -> tuple[list[str], int]:
        """Return the sequence names of the next batch if it is steady, and the sum of the tokens they will have
        computed.
        """
        return list(self._steady.names), self._steady.total + (self._steady.ahead + 1) * len(self._steady.names)

    def _catch_up(self) -> None:
        steady = self._steady
        if steady.step:
            for name, start in zip(steady.names, steady.context, strict=True):
                sequence = self._sequences[name]
                sequence.computed = max(sequence.computed, start + steady.ahead + 1)
                sequence.last_step, sequence.last_batch = steady.step, steady.batch
            steady.step = 0

    def _expect_steady(self, step: Composition, batch: ScheduledBatch) -> None:
        """Record the sequences that decode if the step does nothing else: the next batch may be the same."""
        steady = self._steady = Steady()
        if not step.logits and not step.drafted and not batch.scheduled_new_reqs:
            steady.names = list(batch.scheduled_cached_reqs.req_ids)
            steady.context = list(batch.scheduled_cached_reqs.num_computed_tokens)
            steady.total = sum(steady.context)
            steady.keys = [self._sequences[name].key for name in steady.names]
            steady.ones = [DECODE] * len(steady.keys)  # of scheduled tokens too: one each
            if self._hitters:
                steady.shared = _or_empty([self._shared(self._sequences[name]) for name in steady.names])

    def take(self) -> tuple[list[Begun], list[Ended]]:
        """Return the sequences that began and ended since the last call."""
        begun, ended = self.begun, self.ended
        self.begun, self.ended = [], []
        return begun, ended

    def _begin(self, new: NewRequest) -> None:
        prefill = _prefill_tokens(new)
        known = self._sequences.get(new.req_id)
        if known is not None:  # the second model runner shows a resumed sequence as a new one
            known.recompute_until = known.computed
            known.prefill_until = max(prefill, known.computed)
            return
        self._keys += 1
        sequence = self._sequences[new.req_id] = _Sequence(
            self._keys, prefill, _encoder_tokens(new), computed=new.num_computed_tokens
        )
        self._note_hit(sequence, new)
        extra = getattr(new.sampling_params, "extra_args", None) or {}
        tenant = extra.get(TENANT_ARGUMENT, "")
        self.begun.append(Begun(self._keys, new.req_id, prefill, tenant if isinstance(tenant, str) else ""))

    def _note_hit(self, sequence: _Sequence, new: NewRequest) -> None:
        """Record a prefix hit: its keys are read from memory once for all sequences of the batch, then from the GPU's
        cache.
        """
        blocks = new.block_ids[0] if new.block_ids else ()
        count = min(new.num_computed_tokens // self._block_size, len(blocks))
        if count:
            sequence.hit_tokens, sequence.hit_block = count * self._block_size, blocks[count - 1]
            self._hitters[sequence.hit_block] += 1

    def _shared(self, sequence: _Sequence) -> int:
        """Return how many tokens' reads a sequence saves because others in the batch have the same prefix hit."""
        users = self._hitters[sequence.hit_block] if sequence.hit_tokens else 1
        return int(_SAVED_BY_SHARING * (sequence.hit_tokens - sequence.hit_tokens // users))

    def _resume(self, cached: CachedRequests) -> None:
        for name in cached.resumed_req_ids:  # the first model runner's way
            known = self._sequences.get(name)
            if known is not None:
                known.recompute_until = known.prefill_until = known.computed

    def _end(self, name: str) -> None:
        known = self._sequences.pop(name, None)
        if known is None:
            return
        if known.last_step and self._batches - known.last_batch < self._depth:
            running = self._recent.get(known.last_step)
            if running is not None:
                running.discarded |= {known.key}
        if known.hit_tokens:
            self._hitters[known.hit_block] -= 1
            if not self._hitters[known.hit_block]:
                del self._hitters[known.hit_block]
        self.ended.append(Ended(known.key, known.last_step))

    def _fill(self, step: Composition, batch: ScheduledBatch) -> None:
        cached = batch.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        first = {new.req_id: new.num_computed_tokens for new in batch.scheduled_new_reqs}
        starts.update(first)
        drafts = batch.scheduled_spec_decode_tokens
        odd = bool(first)  # whether the columns `logits`, `cached` and `recompute` are needed
        keys, scheduled, context = [], [], []
        logits, phases, hits, recompute, drafted, shared = [], [], [], [], [], []
        for name, count in batch.num_scheduled_tokens.items():
            sequence = self._sequences.get(name)
            if sequence is None:
                sequence = self._stranger(name, starts.get(name, 0))
            start = starts.get(name, sequence.computed)
            ahead = len(drafts[name]) if name in drafts else 0
            end = start + count
            is_prefill = start < sequence.prefill_until
            again = max(0, min(sequence.recompute_until, end) - start)
            odd = odd or is_prefill or count != 1 or again > 0
            keys.append(sequence.key)
            scheduled.append(count)
            context.append(start)
            phases.append(PREFILL if is_prefill else DECODE)
            logits.append(int(end >= sequence.prefill_until) if is_prefill else count)
            hits.append(first.get(name, 0) if not again else 0)
            recompute.append(again)
            drafted.append(ahead)
            shared.append(self._shared(sequence) if sequence.hit_tokens and not is_prefill else 0)
            sequence.computed = max(sequence.computed, end - ahead)
            sequence.last_step, sequence.last_batch = step.number, self._batches
        step.keys, step.scheduled, step.context, step.phases = keys, scheduled, context, phases
        if odd:
            step.logits, step.cached = logits, _or_empty(hits)
            step.recompute = _or_empty(recompute)
        step.drafted, step.shared = _or_empty(drafted), _or_empty(shared)
        if step.drafted:
            step.names = list(batch.num_scheduled_tokens)
        if batch.scheduled_encoder_inputs:
            self._add_encoder_rows(step, batch.scheduled_encoder_inputs)

    def _add_encoder_rows(self, step: Composition, inputs: Mapping[str, Sequence[int]]) -> None:
        """Add a row per encoder input: an encoder has weights of its own and no KV cache."""
        columns = (step.logits, step.cached, step.recompute, step.drafted, step.shared)
        for name, places in inputs.items():
            sequence = self._sequences.get(name)
            lengths = sequence.encoder_tokens if sequence is not None else []
            tokens = sum(lengths[place] for place in places if place < len(lengths))
            if sequence is None or not tokens:
                continue
            step.keys.append(sequence.key)
            step.scheduled.append(tokens)
            step.context.append(0)
            step.phases.append(ENCODE)
            for column in columns:
                if column:
                    column.append(0)
            if step.names:
                step.names.append("")

    def _stranger(self, name: str, computed: int) -> _Sequence:
        """Register a sequence that began before metering did: its prompt has been computed."""
        self._keys += 1
        found = self._sequences[name] = _Sequence(self._keys, 0, [], computed=computed)
        self.begun.append(Begun(self._keys, name, 0))
        return found


def _or_empty(column: list[int]) -> list[int]:
    return column if any(column) else []


def _prefill_tokens(new: NewRequest) -> int:
    ids = getattr(new, "prefill_token_ids", None) or new.prompt_token_ids
    if ids is not None:
        return len(ids)
    embeds = getattr(new, "prompt_embeds", None)
    return 0 if embeds is None else int(embeds.shape[0])


def _encoder_tokens(new: NewRequest) -> list[int]:
    return [int(one.mm_position.length) for one in (new.mm_features or ())]
