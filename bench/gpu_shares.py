"""What a fair split of a batch would be: exact Shapley values and stand-alone costs, from every subset's own time."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import factorial

Coalition = frozenset[str]


def coalitions(members: Sequence[str]) -> list[Coalition]:
    """Return every non-empty subset, the smallest first."""
    return [frozenset(chosen) for size in range(1, len(members) + 1) for chosen in combinations(members, size)]


def shapley(times: Mapping[Coalition, float]) -> dict[str, float]:
    """Return each member's mean marginal time over all orders of joining (Shapley 1953), exactly.

    `times` holds the time of every non-empty subset. Raises KeyError if one is missing.
    """
    members = sorted(frozenset[str]().union(*times))
    count = len(members)
    shares = dict.fromkeys(members, 0.0)
    for member in members:
        others = [one for one in members if one != member]
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for chosen in combinations(others, size):
                before = frozenset(chosen)
                marginal = times[before | {member}] - (times[before] if before else 0.0)
                shares[member] += weight * marginal
    return shares


def distance(split: Mapping[str, float], fair: Mapping[str, float]) -> float:
    """Return how much of the whole a split puts with someone else than a fair one does: 0 to 1."""
    total = sum(fair.values())
    return sum(abs(split.get(member, 0.0) - share) for member, share in fair.items()) / (2 * total)


def excess(split: Mapping[str, float], times: Mapping[Coalition, float]) -> float:
    """Return by how much a split charges any subset more than it takes alone, at most, as a share of the whole.

    0 or below: the split is in the core, so nobody pays for others.
    """
    everybody = frozenset[str]().union(*times)
    return max(
        (sum(split.get(member, 0.0) for member in chosen) - time) / times[everybody]
        for chosen, time in times.items()
        if chosen != everybody
    )
