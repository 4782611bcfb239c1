"""A simulated replica: continuous batching by the scheduler's rules and a fitted step model.

If a step needs a decision (a prompt to compute, a request to admit, missing blocks), the rules of `algorithms.batching`
decide. Between decisions every running answer grows by one token per step: such a run of steps (a "leap") is simulated
at once, with the sum of the model's step times. Tests compare leaps with the torch engine's scheduler, step by step.
"""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from algorithms.batching import WaitingLine, least_urgent, may_displace, share_step, spare_blocks
from algorithms.gpu_time.step_model import StepComposition
from analytics.planner.decode_run import DecodeRun
from analytics.planner.sequence import SimulatedSequence
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulated_cache import SimulatedCache
from analytics.planner.step_variation import StepVariation

NEVER: Final = math.inf
_PIECES: Final = 8  # steps of a long leap that count as one entry of the gap histogram, as their durations grow slowly


class ReplicaListener(Protocol):
    """Callbacks for a replica's events. Times are simulated nanoseconds."""

    def first_token(self, replica: "SimulatedReplica", sequence: SimulatedSequence, at_ns: float) -> None:
        """A prompt is computed: once per request, and again if another replica continues it."""

    def ended(self, replica: "SimulatedReplica", sequence: SimulatedSequence, at_ns: float) -> None:
        """The last token was produced."""

    def gaps(self, gap_ns: float, count: int) -> None:
        """`count` tokens were each produced `gap_ns` after the one before."""


class SimulatedReplica:
    """One replica, driven by `arrive` and `fire`, which is due at `next_ns`; `version` changes with `next_ns`."""

    def __init__(
        self,
        place: int,
        setup: ReplicaSetup,
        listener: ReplicaListener,
        unit_tokens: int,
        variation: StepVariation | None = None,
    ) -> None:
        self.place = place
        self.setup = setup
        self.kv = SimulatedCache(setup.kv_blocks, setup.block_tokens, unit_tokens)
        self.next_ns = NEVER
        self.version = 0
        self.busy_ns = 0.0
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.computed_tokens = 0
        self.is_away = False
        self._listener = listener
        self._luck = variation  # None: every step takes the model's time
        self._line: WaitingLine[SimulatedSequence] = WaitingLine()
        self._prompts: list[SimulatedSequence] = []  # in progress
        self._rows: list[tuple[SimulatedSequence, int]] = []  # prompt chunks of the step in flight
        self._decodes = DecodeRun(setup)
        self._leap = 0  # steps of the leap in flight; 0: a single step, or none
        self._began_ns = 0.0
        self._is_dry = True  # the device was idle
        self._is_woken = False  # no step is in flight, and a request arrived
        self._arrivals = 0
        self._priority: int | None = None
        self._is_ranked = False  # requests have different priorities

    # what happens

    def arrive(self, sequence: SimulatedSequence, now: float) -> None:
        """Queue a request, and begin a step at once if none runs."""
        self._arrivals += 1
        priority = sequence.order[0]
        if self._priority is None:
            self._priority = priority
        elif priority != self._priority:
            self._is_ranked = True
        sequence.handle = self._arrivals
        sequence.order = (priority, self._arrivals, 0)
        waited = len(self._line)
        self._line.add(sequence)
        if self.next_ns == NEVER:
            self._is_dry = self._is_woken = True  # it begins after all arrivals of this time
            self._due(now)
        elif self._leap > 1 and (self._is_ranked or not waited):  # else the head, which cannot run, remains first
            steps = self._decodes.steps_in(now - self._began_ns, self._leap)
            if steps != self._leap:
                self._leap = steps
                self._due(self._began_ns + self._decodes.elapsed(steps))

    def fire(self, now: float) -> None:
        """Complete the step or leap that ends now, and begin the next."""
        if self._is_woken:
            self._is_woken = False
        elif self._leap:
            self._end_leap()
        else:
            self._end_step(now)
        self._begin(now)

    def kill(self, now: float) -> list[SimulatedSequence]:
        """Lose all state; return the requests that were here, with their tokens so far."""
        decodes = self._decodes
        if self._leap:
            while self._leap and self._began_ns + decodes.elapsed(self._leap) > now:
                self._leap -= 1
            if self._leap:
                self._end_leap()
        lost = list(decodes.members.values())
        for sequence in lost:
            decodes.leave(sequence)
        lost += self._prompts
        while (head := self._line.head()) is not None:
            self._line.take_head()
            lost.append(head)
        for sequence in lost:
            self.recomputed_tokens += sequence.lose_replica(now)
        decodes.clear()
        self._prompts.clear()
        self._rows = []
        self._leap = 0
        self._is_woken = False
        self.kv.clear()
        self._due(NEVER)
        return lost

    @property
    def steps(self) -> int:
        """Return the number of computed steps."""
        return self._decodes.steps

    @property
    def running(self) -> int:
        """Return the number of running sequences."""
        return len(self._decodes.members) + len(self._prompts)

    @property
    def waiting(self) -> int:
        """Return the number of sequences in the queue."""
        return len(self._line)

    # a step's beginning

    def _begin(self, now: float) -> None:
        """Start the next step or leap."""
        decodes, kv = self._decodes, self.kv
        self._leap = 0
        self._began_ns = now
        if self._prompts or self._line or decodes.next_growth > kv.total - kv.held:
            self._fill()
        if self._rows:
            self._due(now + self._step_ns())
        elif decodes.members:
            self._leap = decodes.most_steps(kv.total - kv.held)
            decodes.pace(1.0 if self._luck is None else self._luck.of_run(self._leap))
            self._due(now + decodes.elapsed(self._leap))
        else:
            self._due(NEVER)

    def _fill(self) -> None:
        """Choose the next step's prompt chunks, after allocating blocks for every decode, as the scheduler does."""
        decodes = self._decodes
        if decodes.members:
            growth = decodes.next_growth
            if growth > self.kv.free:
                self._make_room()
            elif growth:
                self.kv.take(growth)
            decodes.note_grown()
        rows = self._rows
        rows += [(one, 1) for one in self._prompts if one.remaining == 1]
        budget = self.setup.max_batch_tokens - len(decodes.members) - len(rows)
        under_way = sorted(self._prompts, key=_order) if len(self._prompts) > 1 else list(self._prompts)
        share_step(budget, under_way, lambda sequence, count: rows.append((sequence, count)), self._admit)

    def _make_room(self) -> None:
        """Allocate a block for each decode that needs one, in order; without a free block, preempt the least urgent."""
        for sequence in sorted(self._decodes.members.values(), key=_order):
            while self._decodes.needs_block(sequence):
                if self.kv.free:
                    self.kv.take(1)
                    break
                victim = least_urgent(self._seated())
                assert victim is not None  # the sequence itself runs
                self._preempt(victim, is_grown=False)  # it is no earlier than this one

    def _admit(self) -> SimulatedSequence | None:
        """Admit the head of the queue, if fewer than the maximum number of sequences run and blocks are free."""
        sequence = self._line.head()
        if sequence is None:
            return None
        units = self._open(sequence)
        while units is None:
            # With equal priorities no request may preempt another, so no victim is searched.
            victim = least_urgent(self._seated()) if self._is_ranked else None
            if victim is None or not may_displace(sequence, victim):
                return None
            self._preempt(victim, is_grown=True)
            self._rows[:] = [row for row in self._rows if row[0] is not victim]
            units = self._open(sequence)
        self._line.take_head()
        sequence.shared = list(sequence.keys[:units])
        sequence.published = units
        hit = units * self.kv.unit_tokens
        if not sequence.produced:
            sequence.cached = hit
        sequence.remaining = sequence.length - hit
        self._prompts.append(sequence)
        return sequence

    def _open(self, sequence: SimulatedSequence) -> int | None:
        running = self.running
        if running >= self.setup.max_sequences:
            return None
        return self.kv.open(sequence.keys, sequence.length, spare_blocks(self.kv.total, others_run=running > 0))

    def _seated(self) -> Sequence[SimulatedSequence]:
        return [*self._decodes.members.values(), *self._prompts]

    def _preempt(self, victim: SimulatedSequence, *, is_grown: bool) -> None:
        """Preempt a sequence: release its blocks. `is_grown`: it already has the block that this step needs."""
        if victim.finish_step >= 0:
            self._decodes.leave(victim)
            self._release(victim, victim.length if is_grown else victim.length - 1)
            victim.remaining = 1
            victim.last_ns = self._began_ns - self.setup.host_gap_ns
        else:
            self._prompts.remove(victim)
            self._release(victim, victim.length)
        self.recomputed_tokens += victim.length - victim.remaining - victim.cached
        victim.remaining = victim.length
        self.preemptions += 1
        self._line.add(victim)

    def _step_ns(self) -> float:
        """Return the predicted duration (ns) of a step of all decodes and the chosen rows, with the gap to the next."""
        decodes = len(self._decodes.members)
        tokens = logits = requests = decodes
        reads, chunks = self._decodes.reads, []
        for sequence, count in self._rows:
            context = sequence.length - sequence.remaining
            tokens += count
            requests += 1
            logits += count == sequence.remaining
            if count == 1:
                reads += context + 1
            else:
                chunks.append((count, context))
        step = StepComposition(tokens, requests, logits, reads, tuple(chunks), self._is_dry)
        self._is_dry = False
        busy = self.setup.steps.predict_composition_ns(step)
        if self._luck is not None:
            busy *= self._luck.of_prompt_step()
        self.busy_ns += busy
        return busy + self.setup.host_gap_ns

    # a step's end

    def _end_leap(self) -> None:
        """Count the tokens of a leap: one per member and step."""
        run, steps, gap = self._decodes, self._leap, self.setup.host_gap_ns
        took, count = run.elapsed(steps), len(run.members)
        self.busy_ns += took - steps * gap
        # The last step is longer than the first by the growth of the answers.
        if run.more_ns * steps < 0.01 * run.each_ns:
            self._listener.gaps(run.each_ns + run.more_ns * (steps - 1) / 2, count * steps)
        else:
            done, pieces = 0, min(_PIECES, steps)
            for piece in range(1, pieces + 1):
                upto = steps * piece // pieces
                self._listener.gaps(run.each_ns + run.more_ns * (done + upto - 1) / 2, count * (upto - done))
                done = upto
        growth = run.growth_of(steps)
        if growth:
            self.kv.take(growth)
        self.computed_tokens += count * steps
        run.advance(steps)
        self._finish(self._began_ns + took - gap)

    def _end_step(self, now: float) -> None:
        """Count the tokens that a step with prompt chunks computed."""
        at, count = now - self.setup.host_gap_ns, len(self._decodes.members)
        self._decodes.advance(1)
        if count:
            self._listener.gaps(now - self._began_ns, count)
            self.computed_tokens += count
            self._finish(at)
        rows, self._rows = self._rows, []
        for sequence, tokens in rows:
            sequence.remaining -= tokens
            self.computed_tokens += tokens
            if sequence.keys:
                self._publish(sequence)
            if not sequence.remaining:
                self._produce(sequence, at)

    def _publish(self, sequence: SimulatedSequence) -> None:
        full = min((sequence.length - sequence.remaining) // self.kv.unit_tokens, len(sequence.keys))
        if full > sequence.published:
            sequence.shared += self.kv.publish(sequence.keys[sequence.published : full])
            sequence.published = full

    def _produce(self, sequence: SimulatedSequence, at: float) -> None:
        """Record the token that ends a prompt: the first, or the one after a preemption."""
        self._prompts.remove(sequence)
        sequence.produced += 1
        if sequence.last_ns:
            self._listener.gaps(at - sequence.last_ns, 1)
        if not sequence.is_seen:
            sequence.is_seen = True
            self._listener.first_token(self, sequence, at)
        sequence.last_ns = at
        if sequence.produced < sequence.output:
            self._decodes.join(sequence)
        else:
            self._release(sequence, sequence.length)
            self._listener.ended(self, sequence, at)

    def _finish(self, at: float) -> None:
        """Remove complete answers. The last token is not in any context, and needs no block."""
        for sequence in self._decodes.finished():
            self._release(sequence, sequence.length - 1)
            self._listener.ended(self, sequence, at)

    def _release(self, sequence: SimulatedSequence, planned: int) -> None:
        """Release the blocks of the given number of tokens."""
        shared = sequence.shared
        self.kv.give_back(self.kv.blocks_for(planned) - len(shared) * self.kv.unit_blocks, shared)
        sequence.shared = []
        sequence.published = 0

    def _due(self, at: float) -> None:
        self.next_ns = at
        self.version += 1


def _order(sequence: SimulatedSequence) -> tuple[int, int, int]:
    return sequence.order
