"""The planner's leaping replica does what the torch engine's own scheduler does, step by step."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import StepModel, StepRow
from analytics.planner.replica import NEVER, SimulatedReplica
from analytics.planner.sequence import SimulatedSequence
from analytics.planner.setup import ReplicaSetup
from backends.engine.torch_engine.block_manager import BLOCK_SIZE, BlockManager
from backends.engine.torch_engine.scheduler import Scheduler
from backends.engine.torch_engine.sequence import State

# No sum of these is a round number, so that no arrival falls on a step's boundary by accident.
MODEL = StepModel(
    token_ns=1003.371, ridge_tokens=9.7, pair_ns=0.0413, read_ns=17.317, logit_ns=251.113, fixed_ns=8009.77
)
GAP_NS = 313.37


@dataclass(frozen=True)
class Job:
    at_ns: int
    tokens: int
    output: int
    priority: int
    keys: tuple[int, ...]


@dataclass
class Told:
    """What a run said: when first and last tokens came, by job, and every gap."""

    first: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    gap_count: int = 0
    gap_sum: float = 0.0

    def first_token(self, replica: SimulatedReplica, sequence: SimulatedSequence, at_ns: float) -> None:
        self.first[sequence.course] = at_ns

    def ended(self, replica: SimulatedReplica, sequence: SimulatedSequence, at_ns: float) -> None:
        assert sequence.course not in self.end
        self.end[sequence.course] = at_ns

    def gaps(self, gap_ns: float, count: int) -> None:
        self.gap_count += count
        self.gap_sum += gap_ns * count


@dataclass(eq=False)
class Stepped:
    """A job as the torch engine's scheduler takes it."""

    handle: int
    job: Job
    state: State = State.WAITING
    computed: int = 0
    cached: int = 0
    high_water: int = 0
    preemptions: int = 0
    token_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.token_ids = [0] * self.job.tokens
        self.keys = SimpleNamespace(keys=[str(key).encode() for key in self.job.keys])
        self.request = SimpleNamespace(submit=SimpleNamespace(tenant="", adapter=""))
        self.order = (self.job.priority, self.handle, 0)

    @property
    def remaining(self) -> int:
        return len(self.token_ids) - self.computed

    @property
    def outputs(self) -> int:
        return len(self.token_ids) - self.job.tokens


def step_through(jobs: list[Job], setup: ReplicaSetup) -> tuple[Told, int]:
    """Play jobs by the scheduler alone: one plan a step."""
    scheduler = Scheduler(BlockManager(setup.kv_blocks), setup.max_batch_tokens, setup.max_sequences)
    told, now, arrived = Told(), 0.0, 0
    last: dict[int, float] = {}
    while arrived < len(jobs) or scheduler.has_work:
        if not scheduler.has_work:
            now = max(now, float(jobs[arrived].at_ns))
        while arrived < len(jobs) and jobs[arrived].at_ns <= now:
            arrived += 1
            scheduler.add(Stepped(arrived, jobs[arrived - 1]))  # type: ignore[arg-type]
        rows = scheduler.plan().rows
        assert rows
        now += MODEL.predict_ns([StepRow(row.count, row.start, int(row.samples)) for row in rows]) + GAP_NS
        for row in rows:
            sequence = row.sequence
            sequence.computed = row.start + row.count
            known = min(sequence.computed, len(sequence.keys.keys) * BLOCK_SIZE)
            scheduler.blocks.publish(sequence.handle, sequence.keys.keys, known)
            if row.samples:
                sequence.token_ids.append(0)
                at, course = now - GAP_NS, sequence.handle - 1
                told.first.setdefault(course, at)
                if course in last:
                    told.gaps(at - last[course], 1)
                last[course] = at
                if sequence.outputs == jobs[course].output:
                    told.end[course] = at
                    scheduler.finish(sequence)
    scheduler.blocks.check_integrity()
    return told, scheduler.preemptions


def leap_through(jobs: list[Job], setup: ReplicaSetup) -> tuple[Told, SimulatedReplica]:
    """Play jobs by the planner's replica."""
    told = Told()
    replica = SimulatedReplica(0, setup, told, BLOCK_SIZE)
    arrived = 0
    while arrived < len(jobs) or replica.next_ns != NEVER:
        if arrived < len(jobs) and jobs[arrived].at_ns <= replica.next_ns:
            job = jobs[arrived]
            replica.arrive(SimulatedSequence(arrived, job.priority, job.tokens, job.output, job.keys), float(job.at_ns))
            arrived += 1
        else:
            replica.fire(replica.next_ns)
        assert 0 <= replica.kv.held <= replica.kv.total
        assert replica.kv.held + replica.kv.cached_blocks <= replica.kv.total
    return told, replica


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    jobs, now = [], 0
    for number in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from((0, 0, 1, 20_011, 150_007, 3_000_017)))
        tokens = draw(st.integers(1, 90))
        units = tokens // BLOCK_SIZE
        common = draw(st.integers(0, units))
        family = draw(st.integers(0, 2))
        keys = tuple(
            [family * 100 + place for place in range(common)]
            + [1000 * (number + 1) + place for place in range(units - common)]
        )
        jobs.append(Job(now, tokens, draw(st.integers(1, 60)), draw(st.sampled_from((0, 0, 1))), keys))
    return jobs


@settings(max_examples=80, deadline=None)
@given(jobs=workloads(), blocks=st.integers(10, 40), seats=st.integers(1, 6), budget=st.sampled_from((6, 17, 64)))
def test_leaps_come_to_what_steps_come_to(jobs: list[Job], blocks: int, seats: int, budget: int) -> None:
    setup = ReplicaSetup(
        steps=MODEL, max_batch_tokens=budget, max_sequences=seats, kv_blocks=blocks, host_gap_ns=GAP_NS
    )
    stepped, preemptions = step_through(jobs, setup)
    leapt, replica = leap_through(jobs, setup)
    assert leapt.first == pytest.approx(stepped.first, rel=1e-9, abs=0.01)
    assert leapt.end == pytest.approx(stepped.end, rel=1e-9, abs=0.01)
    assert replica.preemptions == preemptions
    assert leapt.gap_count == stepped.gap_count == sum(job.output - 1 for job in jobs)
    assert leapt.gap_sum == pytest.approx(stepped.gap_sum, rel=1e-6, abs=0.01)
    assert replica.kv.held == 0


def test_a_long_answer_alone_is_one_leap_and_as_long_as_its_steps() -> None:
    setup = ReplicaSetup(steps=MODEL, max_batch_tokens=64, max_sequences=4, kv_blocks=1_000, host_gap_ns=GAP_NS)
    jobs = [Job(0, 20, 5_000, 0, ())]
    stepped, _ = step_through(jobs, setup)
    told = Told()
    replica = SimulatedReplica(0, setup, told, BLOCK_SIZE)
    replica.arrive(SimulatedSequence(0, 0, 20, 5_000, ()), 0.0)
    events = 0
    while replica.next_ns != NEVER:
        replica.fire(replica.next_ns)
        events += 1
    assert events == 3  # waking, the prompt, then everything else
    assert told.end == pytest.approx(stepped.end, rel=1e-9)
