"""The answers that a simulated replica produces together, one token of each a step: known by their sums.

Nothing is touched per answer and step: an answer's length follows from the step after which it joined, and so does the
step that ends it, and those in which it needs a further block.
"""

import heapq
import math
from typing import Final

from analytics.planner.sequence import SimulatedSequence
from analytics.planner.setup import ReplicaSetup

_LINEAR: Final = 1 << 20  # tokens: a decode's time is linear in what it reads


class DecodeRun:
    """Decoding sequences by handle. `steps` counts the replica's steps, `reads` what the next one's decodes look at."""

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
        self.each_ns = 0.0  # a leap's first step, with the gap behind it
        self.more_ns = 0.0  # by which each further step of it is longer
        self._finishes: list[tuple[int, int, SimulatedSequence]] = []
        self._growth = [0] * setup.block_tokens  # members by the step, modulo a block, in which they need another
        self._grown_step = -1  # whose growth is held already
        self._block_tokens = setup.block_tokens
        self._gap_ns = setup.host_gap_ns
        self._model = setup.steps
        self._empty_ns: dict[int, float] = {}  # a step of so many decodes that read nothing
        self._read_ns = (setup.steps.decode_ns(1, _LINEAR) - setup.steps.decode_ns(1, 0)) / _LINEAR

    def join(self, sequence: SimulatedSequence) -> None:
        """Add a sequence that has just got a token, and wants more."""
        sequence.length += 1
        sequence.joined = self.steps
        sequence.finish_step = self.steps + sequence.output - sequence.produced
        sequence.residue = (self.steps + 1 - sequence.length) % self._block_tokens
        self._growth[sequence.residue] += 1
        self.reads += sequence.length
        self.members[sequence.handle] = sequence
        heapq.heappush(self._finishes, (sequence.finish_step, sequence.handle, sequence))

    def leave(self, sequence: SimulatedSequence) -> None:
        """Let go of a member, which keeps what it has produced."""
        ahead = self.steps - sequence.joined
        sequence.length += ahead
        sequence.produced += ahead
        sequence.finish_step = -1
        del self.members[sequence.handle]
        self._growth[sequence.residue] -= 1
        self.reads -= sequence.length

    def advance(self, steps: int) -> None:
        """Count steps that are done."""
        self.steps += steps
        self.reads += steps * len(self.members)

    def finished(self) -> list[SimulatedSequence]:
        """Let go of the members whose answers are complete, and return them."""
        finishes, done = self._finishes, []
        while finishes and finishes[0][0] <= self.steps:
            step, _, sequence = heapq.heappop(finishes)
            if sequence.finish_step == step:  # else it was preempted meanwhile
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
        """Return whether a sequence is a member that needs a further block in the next step."""
        return sequence.finish_step >= 0 and sequence.residue == self.steps % self._block_tokens

    @property
    def next_growth(self) -> int:
        """Return the number of blocks that members need in the next step, whether or not they are held already."""
        return self._growth[self.steps % self._block_tokens]

    def growth_of(self, steps: int) -> int:
        """Count the blocks that members need in the next the given number of steps, but for what is held already."""
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

    # a leap

    def most_steps(self, free: int) -> int:
        """Return how many steps can be taken until someone finishes or the given number of free blocks run out; at
        least 1.
        """
        finishes = self._finishes
        while finishes[0][2].finish_step != finishes[0][0]:
            heapq.heappop(finishes)
        most = finishes[0][0] - self.steps
        if len(self.members) * (most // self._block_tokens + 1) <= free or self.growth_of(most) <= free:
            return most
        low, high = 1, most  # the first one fits: who asks has made room for it
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.growth_of(middle) <= free else (low, middle)
        return low

    def pace(self, luck: float = 1.0) -> None:
        """Predict the next step, and by how much each that follows is longer. `luck` multiplies both."""
        decodes = len(self.members)
        empty_ns = self._empty_ns.get(decodes)
        if empty_ns is None:
            empty_ns = self._empty_ns[decodes] = self._model.decode_ns(decodes, 0)
        self.each_ns = (empty_ns + self._read_ns * (self.reads - decodes)) * luck + self._gap_ns
        self.more_ns = self._read_ns * decodes * luck

    def elapsed(self, steps: int) -> float:
        """Predict the given number of steps from where `pace` was asked: a sum of a growing read."""
        return steps * self.each_ns + self.more_ns * (steps * (steps - 1) // 2)

    def steps_in(self, passed_ns: float, most: int) -> int:
        """Return how many steps, of at most that many, have begun when so much time has passed."""
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
