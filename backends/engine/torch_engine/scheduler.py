"""Schedules the next step's tokens per sequence, by `algorithms.batching`. Counts and blocks, no tensors.

Decodes go first, one token each; the rest of the step's token budget goes to prompts, in chunks, in the order of
priority and arrival. The gateway handles fairness between tenants: here priorities are inputs.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from algorithms.batching import WaitingLine, least_urgent, may_displace, share_step, spare_blocks
from backends.engine.torch_engine.block_manager import BlockManager
from backends.engine.torch_engine.sequence import Row, Sequence, State


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: rows, decodes first, and the sequences that were preempted for it."""

    rows: list[Row]
    preempted: list[Sequence]


@dataclass(slots=True)
class Scheduler:
    """Continuous batching with preemption by recomputation.

    A sequence is admitted once there are blocks for all its tokens so far, so that a prompt never stops half way; only
    growth by decoding preempts. The victim is the least urgent, among equals the latest. A waiting sequence may also
    replace a strictly less urgent one. No sequence overtakes the head of the queue. Pinned blocks are released before
    anything running is preempted, and if that lets a waiting sequence run.
    """

    blocks: BlockManager
    max_batch_tokens: int
    max_sequences: int
    running: list[Sequence] = field(default_factory=list)
    preemptions: int = 0
    # Lets go of so many blocks that are only kept for later, but of none under these keys; says of how many.
    give_up: Callable[[int, Collection[bytes]], int] = lambda wanted, spared: 0
    _line: WaitingLine[Sequence] = field(default_factory=WaitingLine)

    def __post_init__(self) -> None:
        if self.max_batch_tokens < self.max_sequences:
            raise ValueError(
                f"a step of {self.max_batch_tokens} tokens cannot hold one of each of {self.max_sequences} sequences"
            )

    @property
    def waiting(self) -> int:
        """Return the number of sequences in the queue."""
        return len(self._line)

    @property
    def has_work(self) -> bool:
        """Return whether anything runs or waits."""
        return bool(self.running or self._line)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        sequence.state = State.WAITING
        self._line.add(sequence)

    def adopt(self, sequence: Sequence) -> bool:
        """Start a forked sequence, which has its table already; `False` if every slot is in use."""
        if len(self.running) >= self.max_sequences:
            return False
        sequence.state = State.RUNNING
        self.running.append(sequence)
        return True

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence in any state, and release its blocks. A second call does nothing."""
        if sequence.state is State.RUNNING:
            self.running.remove(sequence)
            self.blocks.free(sequence.handle)
        self._line.discard(sequence)
        sequence.state = State.DONE

    def plan(self) -> Plan:
        """Choose the next step's rows, allocating their blocks. No rows: nothing can run."""
        self.running.sort(key=_order)
        preempted: list[Sequence] = []
        rows: dict[int, Row] = {}
        for sequence in list(self.running):
            if sequence.remaining == 1 and self._make_room(sequence, preempted, rows):
                rows[sequence.handle] = Row.of(sequence, 1)

        def give(sequence: Sequence, count: int) -> None:
            rows[sequence.handle] = Row.of(sequence, count)

        # A copy: who is admitted runs, and has its chunk already.
        share_step(self.max_batch_tokens - len(rows), list(self.running), give, lambda: self._admit(preempted, rows))
        return Plan(list(rows.values()), preempted)

    def _make_room(self, sequence: Sequence, preempted: list[Sequence], rows: dict[int, Row]) -> bool:
        """Extend a running sequence's table by preempting others; `False` if it was preempted itself."""
        while sequence.state is State.RUNNING:
            if self.blocks.grow(sequence.handle, len(sequence.token_ids)):
                return True
            if self.give_up(1, ()):
                continue
            victim = least_urgent(self.running)
            assert victim is not None  # the sequence itself runs
            self._preempt(victim, preempted, rows)
        return False

    def _admit(self, preempted: list[Sequence], rows: dict[int, Row]) -> Sequence | None:
        """Admit the head of the queue, if there is a seat and there are blocks for it."""
        sequence = self._line.head()
        if sequence is None:
            return None
        while not self._open(sequence):
            victim = least_urgent(self.running)
            # Whoever was preempted for this step, or is more urgent, is not driven out by a newcomer.
            may_preempt = may_displace(sequence, victim)
            if self._use_kept(sequence, in_part=may_preempt or not self.running):
                continue
            if victim is None or not may_preempt:
                return None
            self._preempt(victim, preempted, rows)
        self._line.take_head()
        sequence.state = State.RUNNING
        self.running.append(sequence)
        return sequence

    def _open(self, sequence: Sequence) -> bool:
        if len(self.running) >= self.max_sequences or self._lack(sequence) > 0:
            return False
        label = (sequence.request.submit.tenant, sequence.request.submit.adapter)
        hit = self.blocks.open(sequence.handle, sequence.keys.keys, len(sequence.token_ids), label)
        if hit is None:
            return False
        sequence.computed = sequence.cached = hit
        return True

    def _lack(self, sequence: Sequence) -> int:
        """Return the number of blocks that a waiting sequence lacks."""
        spare = spare_blocks(self.blocks.total, others_run=bool(self.running))
        return self.blocks.lack(sequence.keys.keys, len(sequence.token_ids), spare)

    def _use_kept(self, sequence: Sequence, *, in_part: bool) -> bool:
        """Release pinned blocks for a waiting sequence; return whether that helped.

        Unless `in_part`, none are released if all of them would be too few: it would still wait.
        """
        if len(self.running) >= self.max_sequences or not self.blocks.only_pinned():
            return False
        lack, keys = self._lack(sequence), sequence.keys.keys
        hits = frozenset(keys[: len(self.blocks.hits(keys, len(sequence.token_ids)))])
        if not in_part and self.blocks.only_pinned(hits) < lack:
            return False
        return self.give_up(lack, hits) > 0

    def _preempt(self, sequence: Sequence, preempted: list[Sequence], rows: dict[int, Row]) -> None:
        rows.pop(sequence.handle, None)
        self.running.remove(sequence)
        self.blocks.free(sequence.handle)
        sequence.computed = sequence.cached = 0
        sequence.preemptions += 1
        self.preemptions += 1
        preempted.append(sequence)
        self.add(sequence)


def _order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order
