"""The credits of pools with weighted round robin: what each target has accumulated towards its next turn."""

from collections.abc import Mapping

from contracts.serving.configuration import PoolSpec, TargetSpec

_Shares = tuple[tuple[str, int], ...]  # (target's id, weight) each


class CreditBook:
    """Credits by target id, for every set of weights of a pool.

    Credits earned under other weights count no more. They are stored separately until the pools are followed, so that
    requests that started before a change and after it do not use each other's turns.
    """

    def __init__(self) -> None:
        self._latest: dict[str, tuple[tuple[TargetSpec, ...], dict[str, int]]] = {}
        self._by_shares: dict[str, dict[_Shares, dict[str, int]]] = {}

    def of(self, pool: PoolSpec) -> dict[str, int]:
        """Return the current credits of a pool's targets."""
        latest = self._latest.get(pool.id)
        if latest is not None and latest[0] is pool.targets:
            return latest[1]
        known, shares = self._by_shares.setdefault(pool.id, {}), _shares_of(pool)
        credits = known.get(shares)
        if credits is None:
            credits = known[shares] = dict.fromkeys((target.id for target in pool.targets), 0)
        self._latest[pool.id] = pool.targets, credits
        return credits

    def follow(self, pools: Mapping[str, PoolSpec]) -> None:
        """Drop pools that are gone, and credits under weights that are no longer configured."""
        self._latest.clear()
        for name, known in list(self._by_shares.items()):
            pool = pools.get(name)
            credits = None if pool is None else known.get(_shares_of(pool))
            if pool is None or credits is None:
                del self._by_shares[name]
            else:
                self._by_shares[name] = {_shares_of(pool): credits}


def _shares_of(pool: PoolSpec) -> _Shares:
    return tuple([(target.id, target.weight) for target in pool.targets])
