"""Workers that each send one request after another to a pool's replicas, in time that is only counted."""

import heapq
import random
from collections.abc import Callable, Sequence
from itertools import count

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest

_BLOCK = 64  # tokens


class Replicas:
    """What replicas take, in seconds: a request at one of speed 1, `per_running` more for each that is beside it."""

    def __init__(
        self,
        speeds: Sequence[float],
        *,
        seconds: float = 0.05,
        per_running: float = 0.0,
        first_share: float = 0.5,
        jitter: float = 0.05,
        outputs: tuple[int, int] = (20, 20),
    ) -> None:
        """`first_share`: of a request's time until its first token; `outputs`: fewest and most tokens."""
        self.speeds = speeds
        self.seconds = seconds
        self.per_running = per_running
        self.first_share = first_share
        self.jitter = jitter
        self.outputs = outputs


def play(
    replicas: Replicas,
    workers: int,
    requests: int,
    *,
    is_whole: bool,
    shared_blocks: int = 0,
    prefixes: int = 1,
    own_tokens: int = 20,
    seed: int = 1,
    policy: str = "cost",
    idle_seconds: float = 0.0,
    output_guess: int = 256,
) -> tuple[list[int], float]:
    """Return how many requests each replica was sent, and the share that found its beginning cached.

    `shared_blocks`: with which every prompt begins, one of `prefixes` drawn.
    """
    source, numbers = random.Random(seed), count()
    fleet = Fleet(policy_named(policy, source.random))
    fleet.follow([(f"r{place}", 1) for place in range(len(replicas.speeds))])
    sent, running = [0] * len(replicas.speeds), [0] * len(replicas.speeds)
    beginnings = [[source.getrandbits(60) for _ in range(shared_blocks)] for _ in range(prefixes)]
    found = 0
    events: list[tuple[int, int, Callable[[int], None]]] = []

    def at(when_ns: int, event: Callable[[int], None]) -> None:
        heapq.heappush(events, (when_ns, next(numbers), event))

    def begin(now_ns: int) -> None:
        nonlocal found
        if sum(sent) >= requests:
            return
        keys = source.choice(beginnings) + [source.getrandbits(60) for _ in range(own_tokens // _BLOCK)]
        request = RoutingRequest(shared_blocks * _BLOCK + own_tokens, keys, _BLOCK, output_guess, "", is_whole)
        view = fleet.view(request, now_ns)
        place = fleet.rank(request, view)[0]
        replica = fleet.replicas[place]
        cached = view.cached_of(replica)
        found += cached > 0
        routed = fleet.begin(replica, request, cached, now_ns, is_blind=is_whole)
        sent[place] += 1
        low, high = replicas.outputs
        output = source.randint(low, high)
        takes = (replicas.seconds + replicas.per_running * running[place]) / replicas.speeds[place]
        takes *= output / high * (1 + replicas.jitter * source.random())
        running[place] += 1
        if not is_whole:
            at(now_ns + round(takes * replicas.first_share * 1e9), lambda now: fleet.first_token(replica, routed, now))

        def end(end_ns: int) -> None:
            running[place] -= 1
            fleet.end(replica, routed, end_ns, output_tokens=output, is_computed=True)
            at(end_ns + 100_000 + round(idle_seconds * 1e9), begin)

        at(now_ns + round(takes * 1e9), end)

    for worker in range(workers):
        at(1_000_000_000 + worker * 1_000, begin)
    while events:
        when_ns, _, event = heapq.heappop(events)
        event(when_ns)
    return sent, found / sum(sent)


def busiest(sent: Sequence[int]) -> float:
    """Return the busiest replica's requests by the mean."""
    return max(sent) * len(sent) / sum(sent)
