"""The decoding sequences of a simulated replica, one token each per step, simulated by their sums.

No work is done per sequence and step: a sequence's length follows from the step after which it joined, and so do its
last step and the steps in which it needs another block.
"""

import heapq
import math
from typing import Final

from analytics.planner.sequence import SimulatedSequence
from analytics.planner.setup import ReplicaSetup

_LINEAR: Final = 1 << 20  # tokens: a decode's time is linear in its context


class DecodeRun:
    """Decoding sequences by handle. `steps` counts the replica's steps, `reads` the next step's context tokens."""

    __slots__ = (
        "_block_tokens",
        "_empty_ns",
        "_finishes",
        "_gap_ns",
        "_grown_step",
        "_growth",
        "_model",
        "_read_ns",
        "each_ns",
        "members",
        "more_ns",
        "reads",
        "steps",
    )

    def __init__(self, setup: ReplicaSetup) -> None:
        self.members: dict[int, SimulatedSequence] = {}
        self.steps = 0
        self.reads = 0
        self.each_ns = 0.0  # a run's first step, with the gap after it
        self.more_ns = 0.0  # increase per further step of the run
        self._finishes: list[tuple[int, int, SimulatedSequence]] = []
        self._growth = [
            0
        ] * setup.block_tokens  # members by the step, modulo the block size, in which they need another block
        self._grown_step = -1  # members whose next block is held already
        self._block_tokens = setup.block_tokens
        self._gap_ns = setup.host_gap_ns
        self._model = setup.steps
        self._empty_ns: dict[int, float] = {}  # duration of a step of that many decodes without context
        self._read_ns = (setup.steps.decode_ns(1, _LINEAR) - setup.steps.decode_ns(1, 0)) / _LINEAR

    def join(self, sequence: SimulatedSequence) -> None:
        """Add a sequence that has produced a token and continues."""
        sequence.length += 1
        sequence.joined = self.steps
        sequence.finish_step = self.steps + sequence.output - sequence.produced
        sequence.residue = (self.steps + 1 - sequence.length) % self._block_tokens
        self._growth[sequence.residue] += 1
        self.reads += sequence.length
        self.members[sequence.handle] = sequence
        heapq.heappush(self._finishes, (sequence.finish_step, sequence.handle, sequence))

    def leave(self, sequence: SimulatedSequence) -> None:
        """Remove a member; its produced tokens remain."""
        ahead = self.steps - sequence.joined
        sequence.length += ahead
        sequence.produced += ahead
        sequence.finish_step = -1
        del self.members[sequence.handle]
        self._growth[sequence.residue] -= 1
        self.reads -= sequence.length

    def advance(self, steps: int) -> None:
        """Count completed steps."""
        self.steps += steps
        self.reads += steps * len(self.members)

    def finished(self) -> list[SimulatedSequence]:
        """Remove and return the members whose answers are complete."""
        finishes, done = self._finishes, []
        while finishes and finishes[0][0] <= self.steps:
            step, _, sequence = heapq.heappop(finishes)
            if sequence.finish_step == step:  # else it was preempted in the meantime
                self.leave(sequence)
                done.append(sequence)
        return done

    def clear(self) -> None:
        """Remove all entries."""
        self.members.clear()
        self._finishes.clear()
        self._growth = [0] * self._block_tokens
        self.reads = 0

    # blocks

    def needs_block(self, sequence: SimulatedSequence) -> bool:
        """Return whether a sequence is a member that needs another block in the next step."""
        return sequence.finish_step >= 0 and sequence.residue == self.steps % self._block_tokens

    @property
    def next_growth(self) -> int:
        """Return the number of blocks that members need in the next step, including those already held."""
        return self._growth[self.steps % self._block_tokens]

    def growth_of(self, steps: int) -> int:
        """Return the number of blocks that members need in the next `steps` steps, without those already held."""
        growth, size = self._growth, self._block_tokens
        whole, rest = divmod(steps, size)
        at = self.steps % size
        needed = whole * len(self.members)
        if rest:
            end = at + rest
            needed += sum(growth[at:end]) if end <= size else sum(growth[at:]) + sum(growth[: end - size])
        return needed - growth[at] if self._grown_step == self.steps else needed

    def note_grown(self) -> None:
        """Record that the next step's blocks are held."""
        self._grown_step = self.steps

    # a run of steps

    def most_steps(self, free: int) -> int:
        """Return the number of steps until a member finishes or `free` blocks are used up; at least 1."""
        finishes = self._finishes
        while finishes[0][2].finish_step != finishes[0][0]:
            heapq.heappop(finishes)
        most = finishes[0][0] - self.steps
        if len(self.members) * (most // self._block_tokens + 1) <= free or self.growth_of(most) <= free:
            return most
        low, high = 1, most  # the first step fits: the caller has freed its blocks
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.growth_of(middle) <= free else (low, middle)
        return low

    def pace(self, variation: float = 1.0) -> None:
        """Predict the next step's duration and the increase per further step (ns); `variation` multiplies both."""
        decodes = len(self.members)
        empty_ns = self._empty_ns.get(decodes)
        if empty_ns is None:
            empty_ns = self._empty_ns[decodes] = self._model.decode_ns(decodes, 0)
        self.each_ns = (empty_ns + self._read_ns * (self.reads - decodes)) * variation + self._gap_ns
        self.more_ns = self._read_ns * decodes * variation

    def elapsed(self, steps: int) -> float:
        """Return the predicted duration (ns) of that many steps since `pace` was called."""
        return steps * self.each_ns + self.more_ns * (steps * (steps - 1) // 2)

    def steps_in(self, passed_ns: float, most: int) -> int:
        """Return the number of steps, at most `most`, that have begun after `passed_ns`."""
        half = self.more_ns / 2
        linear = self.each_ns - half
        if half > 1e-9:
            guess = (math.sqrt(linear * linear + 4 * half * passed_ns) - linear) / (2 * half)
        else:
            guess = passed_ns / linear if linear > 0 else 1.0
        steps = min(max(math.ceil(guess), 1), most)
        while steps > 1 and self.elapsed(steps - 1) >= passed_ns:
            steps -= 1
        while steps < most and self.elapsed(steps) < passed_ns:
            steps += 1
        return steps
