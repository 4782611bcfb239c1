"""The workload of a simulation: requests in order of arrival, which can be scaled and filtered."""

import random
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from contracts.errors import InvalidRequest

SECOND_NS: Final = 1_000_000_000


class PlannedRequest(msgspec.Struct, frozen=True, gc=False):
    """One request. `at_ns` is its arrival since the workload's beginning.

    `keys` name the prompt's first units of `Workload.unit_tokens` tokens: prompts with the same first keys share that
    prefix. `priority` is the engine's: the lowest is first.
    """

    at_ns: int
    input_tokens: int
    output_tokens: int
    tenant: str = ""
    keys: tuple[int, ...] = ()
    session: str = ""
    priority: int = 0


class Workload(msgspec.Struct, frozen=True):
    """Requests sorted by arrival, and their source. Raises InvalidRequest on impossible requests."""

    requests: Sequence[PlannedRequest]
    source: str
    unit_tokens: int = 512

    def __post_init__(self) -> None:
        if not self.requests:
            raise InvalidRequest(f"the workload ({self.source}) has no requests; choose another time or trace")
        last = 0
        for one in self.requests:
            if one.at_ns < last or one.input_tokens < 1 or one.output_tokens < 1:
                raise InvalidRequest(
                    f"a planned request of {one.input_tokens} input and {one.output_tokens} output tokens at "
                    f"{one.at_ns} ns is out of order or empty; both counts must be at least 1"
                )
            last = one.at_ns

    @property
    def seconds(self) -> float:
        """Return the seconds from the beginning to the last arrival; at least 1."""
        return max(self.requests[-1].at_ns / SECOND_NS, 1.0)

    @property
    def mean_output(self) -> float:
        """Return the mean length of an answer, in tokens."""
        return sum(one.output_tokens for one in self.requests) / len(self.requests)

    @property
    def tenants(self) -> dict[str, int]:
        """Count requests by tenant."""
        counts: dict[str, int] = {}
        for one in self.requests:
            counts[one.tenant] = counts.get(one.tenant, 0) + 1
        return counts

    def busier(self, factor: float) -> "Workload":
        """Return the same requests at `factor` times the rate: the time between arrivals is divided by it."""
        if not 0 < factor <= 1_000:
            raise InvalidRequest(f"traffic cannot be multiplied by {factor:g}; use more than 0, at most 1,000")
        shifted = [msgspec.structs.replace(one, at_ns=round(one.at_ns / factor)) for one in self.requests]
        return Workload(shifted, f"{self.source}, x {factor:g}", self.unit_tokens)

    def without(self, tenants: Iterable[str]) -> "Workload":
        """Return the workload without some tenants. Raises InvalidRequest if one has no request in it."""
        gone = set(tenants)
        unknown = gone - self.tenants.keys()
        if unknown:
            raise InvalidRequest(f"no request of {', '.join(sorted(unknown))} is in {self.source}; nothing to move")
        left = [one for one in self.requests if one.tenant not in gone]
        return Workload(left, f"{self.source}, without {', '.join(sorted(gone))}", self.unit_tokens)


def poisson(
    count: int,
    per_second: float,
    input_tokens: float,
    output_tokens: float,
    *,
    spread: float = 0.5,
    tenants: int = 8,
    seed: int = 0,
) -> Workload:
    """Create requests with Poisson arrivals and log-normal lengths; deterministic for a seed.

    `per_second` is the rate, `input_tokens` and `output_tokens` are means, `spread` is the standard deviation of the
    lengths' logarithm.
    """
    if count < 1 or per_second <= 0 or input_tokens < 1 or output_tokens < 1 or tenants < 1 or spread < 0:
        raise InvalidRequest("a made workload needs at least one request, a rate above 0 and lengths of at least 1")
    source = random.Random(seed)
    shift = spread * spread / 2
    at, made = 0.0, []
    exponential, normal, pick = source.expovariate, source.lognormvariate, source.randrange
    names = [f"tenant-{number}" for number in range(tenants)]
    for _ in range(count):
        at += exponential(per_second)
        given = max(round(input_tokens * normal(-shift, spread)), 1)
        produced = max(round(output_tokens * normal(-shift, spread)), 1)
        made.append(PlannedRequest(round(at * SECOND_NS), given, produced, names[pick(tenants)]))
    return Workload(made, f"{count} made requests at {per_second:g} a second")
