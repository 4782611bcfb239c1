"""Schedules the tokens of each step with `algorithms.batching`. Works on counts and blocks, without tensors.

Decoding sequences come first, with one token each; the rest of the token budget goes to prompts, in chunks, by priority
and arrival. Fairness between tenants is the gateway's task: here priorities are given.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from algorithms.batching import WaitingLine, least_urgent, may_displace, share_step, spare_blocks
from backends.engine.torch_engine.block_manager import BlockManager
from backends.engine.torch_engine.sequence import Row, Sequence, State


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of one step, decoding ones first, and the sequences that were preempted for it."""

    rows: list[Row]
    preempted: list[Sequence]


@dataclass(slots=True)
class Scheduler:
    """Continuous batching with preemption by recomputation.

    A sequence is admitted once there are blocks for all its tokens so far, so that only decoding can need preemption.
    The victim is the least urgent sequence, the latest among equals. A queued sequence may also replace a strictly less
    urgent one. No sequence overtakes the head of the queue. Pinned blocks are released before a running sequence is
    preempted, and if that admits a queued one.
    """

    blocks: BlockManager
    max_batch_tokens: int
    max_sequences: int
    running: list[Sequence] = field(default_factory=list)
    preemptions: int = 0
    # Unpins this many blocks, except those under these keys; returns how many were freed.
    give_up: Callable[[int, Collection[bytes]], int] = lambda wanted, spared: 0
    _line: WaitingLine[Sequence] = field(default_factory=WaitingLine)

    def __post_init__(self) -> None:
        if self.max_batch_tokens < self.max_sequences:
            raise ValueError(
                f"a step of {self.max_batch_tokens} tokens cannot hold one of each of {self.max_sequences} sequences"
            )

    @property
    def waiting(self) -> int:
        """Return the number of queued sequences."""
        return len(self._line)

    @property
    def has_work(self) -> bool:
        """Return whether any sequence is running or queued."""
        return bool(self.running or self._line)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        sequence.state = State.WAITING
        self._line.add(sequence)

    def adopt(self, sequence: Sequence) -> bool:
        """Start a forked sequence, which already has its table. Returns False if every slot is in use."""
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
        """Choose the next step's rows and allocate their blocks. An empty plan: nothing can run."""
        self.running.sort(key=_order)
        preempted: list[Sequence] = []
        rows: dict[int, Row] = {}
        for sequence in list(self.running):
            if sequence.remaining == 1 and self._make_room(sequence, preempted, rows):
                rows[sequence.handle] = Row.of(sequence, 1)

        def give(sequence: Sequence, count: int) -> None:
            rows[sequence.handle] = Row.of(sequence, count)

        # A copy: admitted sequences are added to `running`, and have their chunk already.
        share_step(self.max_batch_tokens - len(rows), list(self.running), give, lambda: self._admit(preempted, rows))
        return Plan(list(rows.values()), preempted)

    def _make_room(self, sequence: Sequence, preempted: list[Sequence], rows: dict[int, Row]) -> bool:
        """Extend a running sequence's table by preempting others. Returns False if it was preempted itself."""
        while sequence.state is State.RUNNING:
            if self.blocks.grow(sequence.handle, len(sequence.token_ids)):
                return True
            if self.give_up(1, ()):
                continue
            victim = least_urgent(self.running)
            assert victim is not None  # the sequence itself is running
            self._preempt(victim, preempted, rows)
        return False

    def _admit(self, preempted: list[Sequence], rows: dict[int, Row]) -> Sequence | None:
        """Admit and return the head of the queue if there are a slot and blocks for it, else `None`."""
        sequence = self._line.head()
        if sequence is None:
            return None
        while not self._open(sequence):
            victim = least_urgent(self.running)
            # A newly admitted sequence must not preempt others if one was preempted in this step, or is more urgent.
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
        """Return the number of blocks that a queued sequence lacks."""
        spare = spare_blocks(self.blocks.total, others_run=bool(self.running))
        return self.blocks.lack(sequence.keys.keys, len(sequence.token_ids), spare)

    def _use_kept(self, sequence: Sequence, *, in_part: bool) -> bool:
        """Release pinned blocks for a queued sequence; return whether any were.

        Without `in_part`, none are released if all of them would be too few.
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
