"""Simulates a workload on replicas, with the router's policies.

It is a discrete-event simulation: a request's arrival, the end of a step or of a leap of steps, a replica that fails or
returns. The same workload, setup and seed give the same outcome. Gateways' limits and fair queues are not simulated: a
plan is about the replicas' capacity.
"""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest
from algorithms.routing.prefix_index import PrefixIndex
from algorithms.routing.replica import RoutedRequest
from analytics.collections_off import without_collections
from analytics.planner.gap_histogram import GapHistogram
from analytics.planner.outcome import Outcome, ReplicaUse
from analytics.planner.replica import NEVER, SimulatedReplica
from analytics.planner.sequence import SimulatedSequence
from analytics.planner.setup import ReplicaSetup
from analytics.planner.step_variation import StepVariation
from analytics.planner.workload import Workload
from contracts.errors import InvalidRequest

MAX_REPLICAS: Final = 1_024
_RETRY_NS: Final = 1e9  # delay if no replica is available
_ARRIVAL, _STRIKE, _RETURN = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Outage:
    """A time range in which a replica is unavailable, such as an interrupted spot machine."""

    place: int
    from_ns: float
    to_ns: float


class Simulation:
    """A simulation: a setup per replica, the pool's routing policy by name, and the random seed."""

    def __init__(
        self,
        setups: Sequence[ReplicaSetup],
        *,
        policy: str = "cost",
        seed: int = 0,
        outages: Sequence[Outage] = (),
    ) -> None:
        if not 1 <= len(setups) <= MAX_REPLICAS:
            raise InvalidRequest(f"a plan has 1 to {MAX_REPLICAS} replicas, not {len(setups)}", param="replicas")
        self._setups = setups
        self._policy = policy
        self._seed = seed
        self._outages = sorted(outages, key=lambda one: one.from_ns)
        for outage in self._outages:
            if not 0 <= outage.place < len(setups) or outage.to_ns <= outage.from_ns:
                raise InvalidRequest(f"an outage of replica {outage.place} until {outage.to_ns} ns cannot be")

    def run(self, workload: Workload) -> Outcome:
        """Simulate a workload to its end. Raises InvalidRequest if its prefix units are not whole cache blocks."""
        for setup in self._setups:
            if workload.unit_tokens % setup.block_tokens:
                raise InvalidRequest(
                    f"prefixes of {workload.unit_tokens} tokens are not whole blocks of {setup.block_tokens}"
                )
        run = _Run(self._setups, self._policy, self._seed, self._outages, workload)
        with without_collections():
            return run.play()


class _Run:
    """State of one run, which receives the events of its replicas."""

    def __init__(
        self, setups: Sequence[ReplicaSetup], policy: str, seed: int, outages: Sequence[Outage], workload: Workload
    ) -> None:
        self._setups = setups
        self._workload = workload
        self._requests = workload.requests
        self._has_keys = any(one.keys for one in workload.requests)
        self._replicas = [
            SimulatedReplica(place, one, self, workload.unit_tokens, _luck(one, seed, place))
            for place, one in enumerate(setups)
        ]
        blocks = sum(replica.kv.total // replica.kv.unit_blocks for replica in self._replicas)
        self._fleet = Fleet(policy_named(policy, random.Random(seed).random), PrefixIndex(max_blocks=2 * blocks + 1))
        self._fleet.follow([(f"replica-{place}", 1) for place in range(len(setups))])
        for known in self._fleet.replicas:
            known.is_exact = True
        self._routed: list[RoutedRequest | None] = [None] * len(workload.requests)
        self._first_ns = [math.nan] * len(workload.requests)
        self._end_ns = [math.nan] * len(workload.requests)
        self._cached = 0
        self._refused = 0
        self._gaps = GapHistogram()
        self._wire_ns = max(setup.wire_ns for setup in setups)
        self._largest = max(setups, key=lambda one: one.kv_blocks * one.block_tokens)
        # The gateway's estimate of answer lengths, learned from earlier answers.
        self._expected_output = round(workload.mean_output)
        self._events: list[tuple[float, int, int]] = []  # (time, kind of event or the replica's version, index)
        self._retries: list[SimulatedSequence] = []
        for outage in outages:
            heapq.heappush(self._events, (outage.from_ns, _STRIKE, outage.place))
            heapq.heappush(self._events, (outage.to_ns, _RETURN, outage.place))
        self._ended_ns = 0.0
        self.gaps = self._gaps.add

    def play(self) -> Outcome:
        """Simulate all requests to their end and return the outcome."""
        requests, events, wire = self._requests, self._events, self._wire_ns
        arrival, count = 0, len(requests)
        while arrival < count or events:
            # A request that arrives at the end of a step is part of the next one.
            if arrival < count and (not events or requests[arrival].at_ns + wire <= events[0][0]):
                self._arrive(arrival)
                arrival += 1
                continue
            now, kind, place = heapq.heappop(events)
            if kind >= 0:
                replica = self._replicas[place]
                if kind == replica.version:
                    replica.fire(now)
                    self._tell_cache(replica)
                    self._follow(replica)
            elif kind == _STRIKE:
                self._strike(place, now)
            elif kind == _RETURN:
                self._return(place)
            else:
                waiting, self._retries = self._retries, []
                for sequence in waiting:
                    self._place(sequence, now)
            if arrival == count and not self._is_anything_due():
                break
        return self._outcome()

    def _is_anything_due(self) -> bool:
        return bool(self._retries) or any(replica.next_ns != NEVER for replica in self._replicas)

    # the gateway

    def _arrive(self, course: int) -> None:
        request = self._requests[course]
        if not self._largest.holds(request.input_tokens + request.output_tokens - 1):
            self._refused += 1
            return
        sequence = SimulatedSequence(
            course, request.priority, request.input_tokens, request.output_tokens, request.keys
        )
        self._place(sequence, request.at_ns + self._wire_ns)

    def _place(self, sequence: SimulatedSequence, now: float) -> None:
        """Rank the replicas by the routing policy, and send the request to the first available one."""
        fleet, at = self._fleet, int(now)
        request = self._requests[sequence.course]
        routed_request = RoutingRequest(
            sequence.length, sequence.keys, self._workload.unit_tokens, self._expected_output, request.session
        )
        view = fleet.view(routed_request, at)
        for place in fleet.rank(routed_request, view):
            known, replica = fleet.replicas[place], self._replicas[place]
            cached = min(view.cached_of(known), sequence.length) if view.matches else 0
            routed = fleet.begin(known, routed_request, cached, at)
            if replica.is_away or not replica.setup.holds(request.input_tokens + request.output_tokens - 1):
                fleet.end(known, routed, at, has_failed=replica.is_away)
                continue
            self._routed[sequence.course] = routed
            replica.arrive(sequence, now)
            self._tell_cache(replica)
            self._follow(replica)
            return
        if not self._retries:
            heapq.heappush(self._events, (now + _RETRY_NS, _ARRIVAL, 0))
        self._retries.append(sequence)

    def first_token(self, replica: SimulatedReplica, sequence: SimulatedSequence, at_ns: float) -> None:
        """Record a first token, as the gateway does."""
        course = sequence.course
        if self._first_ns[course] != self._first_ns[course]:  # NaN: no token before
            self._first_ns[course] = at_ns
            self._cached += sequence.cached
        routed = self._routed[course]
        assert routed is not None
        routed.computed = sequence.length - sequence.cached
        self._fleet.first_token(self._fleet.replicas[replica.place], routed, int(at_ns))

    def ended(self, replica: SimulatedReplica, sequence: SimulatedSequence, at_ns: float) -> None:
        """Record an answer's end."""
        course = sequence.course
        self._end_ns[course] = at_ns
        if at_ns > self._ended_ns:
            self._ended_ns = at_ns
        routed = self._routed[course]
        assert routed is not None
        self._routed[course] = None
        self._fleet.end(
            self._fleet.replicas[replica.place], routed, int(at_ns), output_tokens=sequence.output, is_computed=True
        )

    def _tell_cache(self, replica: SimulatedReplica) -> None:
        if self._has_keys and replica.kv.news:
            bit = self._fleet.replicas[replica.place].bit
            for is_stored, keys in replica.kv.take_news():
                (self._fleet.index.stored if is_stored else self._fleet.index.removed)(bit, keys)

    def _follow(self, replica: SimulatedReplica) -> None:
        if replica.next_ns != NEVER:
            heapq.heappush(self._events, (replica.next_ns, replica.version, replica.place))

    # faults

    def _strike(self, place: int, now: float) -> None:
        replica, known = self._replicas[place], self._fleet.replicas[place]
        if replica.is_away:
            return
        replica.is_away = True
        lost = replica.kill(now)
        self._fleet.forget_cache(known.id)
        known.go_away(True)
        for sequence in lost:
            routed = self._routed[sequence.course]
            if routed is not None:
                self._fleet.end(known, routed, int(now), has_failed=True)
        for sequence in lost:
            self._place(sequence, now)

    def _return(self, place: int) -> None:
        replica, known = self._replicas[place], self._fleet.replicas[place]
        replica.is_away = False
        known.go_away(False)
        self._fleet.begin_cache(known.id, ())

    def _outcome(self) -> Outcome:
        ttft = [
            first - request.at_ns
            for first, request in zip(self._first_ns, self._requests, strict=True)
            if first == first
        ]
        span = max(self._ended_ns, float(self._requests[-1].at_ns), 1.0)
        return Outcome.of(
            ttft_ns=ttft,
            gaps=self._gaps,
            requests=len(self._requests),
            refused=self._refused,
            served=sum(1 for end in self._end_ns if end == end),
            input_tokens=sum(one.input_tokens for one in self._requests),
            output_tokens=sum(
                one.output_tokens for one, end in zip(self._requests, self._end_ns, strict=True) if end == end
            ),
            cached_tokens=self._cached,
            span_ns=span,
            replicas=[_use(replica, span) for replica in self._replicas],
            setups=self._setups,
        )


def _luck(setup: ReplicaSetup, seed: int, place: int) -> StepVariation | None:
    if not setup.prompt_ratios:
        return None
    return StepVariation(setup.prompt_ratios, setup.decode_ratios, f"{seed}/{place}/steps")


def _use(replica: SimulatedReplica, span_ns: float) -> ReplicaUse:
    return ReplicaUse(
        busy_share=min(replica.busy_ns / span_ns, 1.0),
        peak_kv_share=replica.kv.peak / replica.kv.total,
        steps=replica.steps,
        computed_tokens=replica.computed_tokens,
        preemptions=replica.preemptions,
        recomputed_tokens=replica.recomputed_tokens,
    )
