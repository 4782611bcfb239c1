"""Replicas that prefill one prompt after another and cache prefixes, simulated around the router's real code.

The model is the one that published results on Mooncake's traces are compared by here: a replica computes prompts in
the order they come, at a constant pace, and keeps the least recently used blocks out of its cache. Times are seconds
outside and nanoseconds inside.
"""

import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.base import Policy
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest
from algorithms.routing.prefix_index import PrefixIndex
from algorithms.routing.replica import RoutedRequest

_NANO: Final = 1_000_000_000
_GAP_NS: Final = 20_000_000  # between two tokens of an answer
_RETRY_NS: Final = 1_000_000_000  # a request that no replica takes is tried again

Now = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload: when, how long, and its blocks by chained ids."""

    at_ns: int
    tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    session: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """The replicas: how many, what each caches, how fast it computes, and whether it tells of its cache."""

    replicas: int = 10
    cache_tokens: int = 3_000_000
    tokens_per_second: float = 9_000.0
    block_tokens: int = 512
    tells: bool = True


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls a replica: from when to when (seconds) it is `slower` times as slow, or dead."""

    from_second: float
    to_second: float
    slower: float = 1.0
    is_dead: bool = False
    place: int = 0


@dataclass(slots=True)
class Course:
    """What became of a request: who answered, when its first token came, how much of it was cached."""

    request: Request
    place: int = -1
    first_ns: int = -1
    cached: int = 0
    tries: int = 0

    @property
    def ttft_seconds(self) -> float:
        """Return the time to first token. Raises ValueError if none came."""
        if self.first_ns < 0:
            raise ValueError("a request had no first token")
        return (self.first_ns - self.request.at_ns) / _NANO


@dataclass(slots=True, eq=False)
class _Job:
    course: Course
    routed_request: RoutingRequest
    hold: RoutedRequest
    ranked: list[int]


@dataclass(slots=True, eq=False)
class _Engine:
    """One replica's inside."""

    place: int
    capacity: int
    cache: "OrderedDict[int, None]" = field(default_factory=OrderedDict)
    waiting: deque[_Job] = field(default_factory=deque)
    answering: dict[_Job, None] = field(default_factory=dict)
    work: int = 0
    is_dead: bool = False
    slower: float = 1.0
    life: int = 0  # what was begun in an earlier one ends nowhere

    def cached_tokens(self, routed_request: RoutingRequest) -> int:
        """Return how much of a prompt is cached."""
        hit = 0
        for key in routed_request.keys:
            if key not in self.cache:
                break
            hit += 1
        return min(hit * routed_request.block_tokens, routed_request.tokens)

    def store(self, keys: Sequence[int]) -> tuple[list[int], list[int]]:
        """Add a prompt's blocks, its end to be evicted first; return what is new and what had to go."""
        cache = self.cache
        new = [key for key in keys if key not in cache]
        for key in reversed(keys):
            cache[key] = None
            cache.move_to_end(key)
        removed = [cache.popitem(last=False)[0] for _ in range(len(cache) - self.capacity)]
        return new, removed


class ReplicaSimulator:
    """Plays requests against a policy, one of ours by its name. `seed` is of such a policy's draws."""

    def __init__(self, policy: str | Policy, setting: Setting, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self._setting = setting
        blocks = setting.replicas * setting.cache_tokens // setting.block_tokens
        played = policy_named(policy, random.Random(seed).random) if isinstance(policy, str) else policy
        self.fleet = Fleet(played, PrefixIndex(assumed_blocks=2 * blocks))
        self.fleet.follow([(f"replica-{place}", 1) for place in range(setting.replicas)])
        for replica in self.fleet.replicas:
            replica.is_exact = setting.tells
        capacity = setting.cache_tokens // setting.block_tokens
        self._engines = [_Engine(place, capacity) for place in range(setting.replicas)]
        self._events: list[tuple[int, int, Now]] = []
        self._order = itertools.count()
        for fault in faults:
            self._at(round(fault.from_second * _NANO), partial(self._strike, fault))
            self._at(round(fault.to_second * _NANO), partial(self._heal, fault))

    def run(self, requests: Sequence[Request]) -> list[Course]:
        """Play all requests to their first token; return their courses in their order."""
        courses = [Course(request) for request in requests]
        for course in courses:
            self._at(course.request.at_ns, partial(self._arrive, course))
        open_courses = len(courses)
        while self._events and open_courses:
            now, _, action = heapq.heappop(self._events)
            action(now)
        return courses

    @property
    def work(self) -> list[int]:
        """Return the tokens each replica has computed."""
        return [engine.work for engine in self._engines]

    def _at(self, time_ns: int, action: Now) -> None:
        heapq.heappush(self._events, (time_ns, next(self._order), action))

    # the gateway

    def _arrive(self, course: Course, now: int) -> None:
        request = course.request
        routed_request = RoutingRequest(
            request.tokens, request.blocks, self._setting.block_tokens, request.output_tokens, request.session
        )
        view = self.fleet.view(routed_request, now)
        for place in self.fleet.rank(routed_request, view):
            course.tries += 1
            replica, engine = self.fleet.replicas[place], self._engines[place]
            hold = self.fleet.begin(replica, routed_request, min(view.cached(place), routed_request.tokens), now)
            if engine.is_dead:
                self.fleet.end(replica, hold, now, has_failed=True)
                continue
            engine.waiting.append(_Job(course, routed_request, hold, []))
            if len(engine.waiting) == 1:
                self._prefill(engine, now)
            return
        self._at(now + _RETRY_NS, partial(self._arrive, course))

    # a replica

    def _prefill(self, engine: _Engine, now: int) -> None:
        job = engine.waiting[0]
        job.course.cached = engine.cached_tokens(job.routed_request)
        uncached = job.routed_request.tokens - job.course.cached
        took = uncached / self._setting.tokens_per_second * engine.slower * _NANO
        self._at(now + round(took), partial(self._end_prefill, engine, engine.life))

    def _end_prefill(self, engine: _Engine, life: int, now: int) -> None:
        if engine.life != life:
            return
        job = engine.waiting.popleft()
        course, replica = job.course, self.fleet.replicas[engine.place]
        course.first_ns, course.place = now, engine.place
        engine.work += job.routed_request.tokens - course.cached
        new, removed = engine.store(job.routed_request.keys)
        job.hold.computed = job.routed_request.tokens - course.cached
        if replica.is_exact:
            self.fleet.index.stored(replica.bit, new)
            self.fleet.index.removed(replica.bit, removed)
        self.fleet.first_token(replica, job.hold, now)
        engine.answering[job] = None
        self._at(now + job.routed_request.output_tokens * _GAP_NS, partial(self._end_answer, engine, job, life))
        if engine.waiting:
            self._prefill(engine, now)

    def _end_answer(self, engine: _Engine, job: _Job, life: int, now: int) -> None:
        if engine.life == life:
            del engine.answering[job]
            replica = self.fleet.replicas[engine.place]
            self.fleet.end(replica, job.hold, now, output_tokens=job.routed_request.output_tokens)

    # faults

    def _strike(self, fault: Fault, now: int) -> None:
        engine = self._engines[fault.place]
        engine.slower = fault.slower
        if not fault.is_dead:
            return
        lost = [*engine.waiting, *engine.answering]
        engine.is_dead = True
        engine.life += 1
        unseen = list(engine.waiting)
        engine.waiting.clear()
        engine.answering.clear()
        engine.cache.clear()
        self.fleet.forget_cache(self.fleet.replicas[fault.place].id)
        for job in lost:
            self.fleet.end(self.fleet.replicas[fault.place], job.hold, now, has_failed=True)
        for job in unseen:
            self._arrive(job.course, now)

    def _heal(self, fault: Fault, now: int) -> None:
        engine = self._engines[fault.place]
        engine.slower = 1.0
        if fault.is_dead:
            engine.is_dead = False
            if self._setting.tells:
                self.fleet.begin_cache(self.fleet.replicas[fault.place].id, ())
