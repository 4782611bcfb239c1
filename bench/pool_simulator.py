"""A pool with an engine that batches continuously, simulated: the gateway's own queue before a model of an engine.

The engine computes one token of every running request and what it has room for of prompts in each step, as our torch
engine does; a step takes what a fitted or stated step model says. Times are nanoseconds from the beginning.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from algorithms.gpu_time.step_model import StepComposition, StepModel
from contracts.rules.limits import PriorityClass
from gateway.limits.queue.request import QueuedRequest


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a workload."""

    arrival_ns: int
    tenant: str
    prompt_tokens: int
    output_tokens: int
    weight: int = 1
    priority: PriorityClass = "standard"

    def request(self) -> QueuedRequest:
        """Return the request as the queue takes it: its output is bounded by what it comes to."""
        reserved = self.prompt_tokens + self.output_tokens
        return QueuedRequest(self.tenant, self.prompt_tokens, reserved, self.priority, self.weight)


@dataclass(slots=True)
class Course:
    """What became of a job: when it left the queue, when its first and last token came; `None`: never."""

    job: Job
    begun_ns: int | None = None
    first_ns: int | None = None
    ended_ns: int | None = None

    @property
    def ttft_ns(self) -> int:
        """Return the time to first token. Raises ValueError if none came."""
        if self.first_ns is None:
            raise ValueError(f"a request of {self.job.tenant} had no first token")
        return self.first_ns - self.job.arrival_ns


class Queue(Protocol):
    """What stands before the engine: `gateway.limits.queue.FairQueue`, or what it is compared with."""

    def arrive(self, request: QueuedRequest, now_ns: int) -> QueuedRequest | None:
        """Let a request wait."""

    def next(self, now_ns: int) -> QueuedRequest | None:
        """Dispatch a request that fits."""

    def charge(self, request: QueuedRequest, output_tokens: int) -> None:
        """Count output."""

    def leave(self, request: QueuedRequest, now_ns: int) -> None:
        """Remove a request that has ended."""


@dataclass(slots=True)
class FirstComeQueue:
    """First come, first served, with the same bounds on what runs: what fairness is compared with."""

    max_in_flight: int
    max_tokens: int
    in_flight: int = 0
    tokens: int = 0
    _waiting: deque[QueuedRequest] = field(default_factory=deque)

    def arrive(self, request: QueuedRequest, now_ns: int) -> None:
        """Let a request wait."""
        self._waiting.append(request)

    def next(self, now_ns: int) -> QueuedRequest | None:
        """Dispatch the oldest if it fits."""
        if not self._waiting or self.in_flight >= self.max_in_flight:
            return None
        if self.tokens + self._waiting[0].reserved_tokens > self.max_tokens:
            return None
        request = self._waiting.popleft()
        self.in_flight += 1
        self.tokens += request.reserved_tokens
        return request

    def charge(self, request: QueuedRequest, output_tokens: int) -> None:
        """Count nothing: nobody is compared."""

    def leave(self, request: QueuedRequest, now_ns: int) -> None:
        """Remove a request that has ended."""
        self.in_flight -= 1
        self.tokens -= request.reserved_tokens


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An engine: how long a step takes, how much goes into one, and how long a message to or from it is in progress."""

    steps: StepModel
    max_sequences: int = 64
    max_batch_tokens: int = 512
    wire_ns: int = 0


@dataclass(slots=True)
class _Sequence:
    request: QueuedRequest
    course: Course
    computed: int = 0
    produced: int = 0

    @property
    def remaining(self) -> int:
        return self.course.job.prompt_tokens + self.produced - self.computed


Served = Callable[[int, str, int, int], None]  # when, which tenant, input tokens begun, output tokens produced


class PoolSimulator:
    """Plays jobs against a queue and an engine. `served` is told of all service as it is given."""

    def __init__(self, queue: Queue, engine: EngineModel, served: Served | None = None) -> None:
        self._queue = queue
        self._engine = engine
        self._served = served
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = count()
        self._courses: dict[QueuedRequest, Course] = {}
        self._inbox: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._is_stepping = False
        self._ends_ns = 0

    def run(self, jobs: Sequence[Job], until_ns: int | None = None) -> list[Course]:
        """Play all jobs to their end, or until a time; return their courses in the order of the jobs."""
        courses = []
        for job in jobs:
            course = Course(job)
            courses.append(course)
            self._at(job.arrival_ns, partial(self._arrive, course))
        while self._events and (until_ns is None or self._events[0][0] <= until_ns):
            now, _, action = heapq.heappop(self._events)
            action(now)
        return courses

    def _at(self, time_ns: int, action: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (time_ns, next(self._order), action))

    # the gateway

    def _arrive(self, course: Course, now: int) -> None:
        request = course.job.request()
        self._courses[request] = course
        self._queue.arrive(request, now)
        self._dispatch(now)

    def _dispatch(self, now: int) -> None:
        while (request := self._queue.next(now)) is not None:
            course = self._courses[request]
            course.begun_ns = now
            self._tell(now, request, request.input_tokens, 0)
            sequence = _Sequence(request, course)
            self._at(now + self._engine.wire_ns, partial(self._submit, sequence))

    def _receive(self, produced: Sequence[_Sequence], ended: Sequence[_Sequence], now: int) -> None:
        for sequence in produced:
            self._queue.charge(sequence.request, 1)
            self._tell(now, sequence.request, 0, 1)
            if sequence.course.first_ns is None:
                sequence.course.first_ns = now
        for sequence in ended:
            sequence.course.ended_ns = now
            self._queue.leave(sequence.request, now)
            del self._courses[sequence.request]
        if ended:
            self._dispatch(now)

    def _tell(self, now: int, request: QueuedRequest, input_tokens: int, output_tokens: int) -> None:
        if self._served is not None:
            self._served(now, request.tenant_id, input_tokens, output_tokens)

    # the engine

    def _submit(self, sequence: _Sequence, now: int) -> None:
        self._inbox.append(sequence)
        if not self._is_stepping:
            self._step(now)

    def _step(self, now: int) -> None:
        """Start a step: decodes first, then prompts in progress, then those that have just come."""
        rows = [(sequence, 1) for sequence in self._running if sequence.remaining == 1]
        budget = self._engine.max_batch_tokens - len(rows)
        for sequence in self._running:
            if budget > 0 and sequence.remaining > 1:
                rows.append((sequence, min(sequence.remaining, budget)))
                budget -= rows[-1][1]
        while budget > 0 and self._inbox and len(self._running) < self._engine.max_sequences:
            sequence = self._inbox.popleft()
            self._running.append(sequence)
            rows.append((sequence, min(sequence.remaining, budget)))
            budget -= rows[-1][1]
        self._is_stepping = bool(rows)
        if rows:
            taken = round(self._engine.steps.predict_composition_ns(_composition(rows)))
            self._at(now + max(taken, 1), partial(self._end_step, rows))

    def _end_step(self, rows: Sequence[tuple[_Sequence, int]], now: int) -> None:
        produced, ended = [], []
        for sequence, tokens in rows:
            sequence.computed += tokens
            if sequence.remaining == 0:
                sequence.produced += 1
                produced.append(sequence)
                if sequence.produced >= sequence.course.job.output_tokens:
                    ended.append(sequence)
        if ended:
            done = set(map(id, ended))
            self._running = [sequence for sequence in self._running if id(sequence) not in done]
        self._at(now + self._engine.wire_ns, partial(self._receive, produced, ended))
        # The engine goes on at once: what this step's ends make room for joins the step after the next, as in reality.
        # Only what was dispatched at this very moment without any wire between is there already.
        self._at(now, self._step)


def _composition(rows: Sequence[tuple[_Sequence, int]]) -> StepComposition:
    reads = sum(sequence.computed + 1 for sequence, tokens in rows if tokens == 1)
    chunks = tuple((tokens, sequence.computed) for sequence, tokens in rows if tokens > 1)
    logits = sum(sequence.remaining == tokens for sequence, tokens in rows)
    return StepComposition(sum(tokens for _, tokens in rows), len(rows), logits, reads, chunks)
