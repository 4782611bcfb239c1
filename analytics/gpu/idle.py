"""Four policies that charge idle GPU time to tenants; each splits exactly to the pico-dollar."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from algorithms.gpu_time.attribution import split_exactly
from contracts.errors import InvalidRequest

IdlePolicy = Literal["platform", "use", "reservation", "peak"]
IDLE_POLICIES: Final[tuple[IdlePolicy, ...]] = ("platform", "use", "reservation", "peak")
PLATFORM: Final = ""  # the payer if no tenant pays


def idle_policy(name: str) -> IdlePolicy:
    """Parse a policy's name. Raises InvalidRequest if it is unknown."""
    if name not in IDLE_POLICIES:
        raise InvalidRequest(f"{name!r} is not an idle policy; choose one of {', '.join(IDLE_POLICIES)}", param="idle")
    return name


def split_idle(
    amount: int,
    policy: IdlePolicy,
    use_ns: Mapping[str, Sequence[int]],
    reserved: Mapping[str, float],
) -> dict[str, int]:
    """Split an amount over tenants and the operator (key `platform`); the parts sum to it exactly.

    `use_ns`: each tenant's GPU time by interval of equal length; `reserved`: its share of the GPUs, in any unit.
    Policy "platform" charges no tenant, "use" charges in proportion to total use, "reservation" to reserved shares (the
    unreserved rest up to 1 is the operator's), "peak" to the tenant's contribution to the peak: the Shapley value of
    the game in which a set of intervals costs its largest demand (Fair-CO2, ISCA 2025), split within an interval by
    use.
    """
    if policy == "use":
        weights = {tenant: float(sum(by_stretch)) for tenant, by_stretch in use_ns.items()}
    elif policy == "reservation":
        weights = dict(reserved)
        weights[PLATFORM] = max(0.0, 1.0 - sum(reserved.values()))
    elif policy == "peak":
        weights = _peak_weights(use_ns)
    else:
        weights = {}
    names = sorted(name for name, weight in weights.items() if weight > 0)
    if not names:
        return {PLATFORM: amount}
    return dict(zip(names, split_exactly(amount, [weights[name] for name in names]), strict=True))


def _peak_weights(use_ns: Mapping[str, Sequence[int]]) -> dict[str, float]:
    demands = [sum(of_stretch) for of_stretch in zip(*use_ns.values(), strict=True)]
    values = peak_values(demands)
    weights: defaultdict[str, float] = defaultdict(float)
    for tenant, by_stretch in use_ns.items():
        for place, used in enumerate(by_stretch):
            if used:
                weights[tenant] += values[place] * used / demands[place]
    return weights


def peak_values(demands: Sequence[int]) -> list[float]:
    """Return each interval's Shapley value in the game where a set of intervals costs its largest demand (airport
    game).

    Example: demands 10, 30 -> 5 and 25: both need the first 10, the second alone the other 20.
    """
    order = sorted(range(len(demands)), key=demands.__getitem__)
    values = [0.0] * len(demands)
    value, below = 0.0, 0
    for rank, place in enumerate(order):
        value += (demands[place] - below) / (len(order) - rank)
        below = demands[place]
        values[place] = value
    return values
