"""Which targets may answer, best first. The next is tried when one fails before the client has seen anything."""

from contracts.configuration import ModelSpec, Snapshot, TargetSpec


class Router:
    """Chooses among a pool's targets: weighted round robin, smooth, one turn counter a pool."""

    def __init__(self) -> None:
        self._credit: dict[tuple[str, str], int] = {}

    def choose(self, model: ModelSpec, snapshot: Snapshot) -> list[TargetSpec]:
        """Give the pool's targets in the order to try them.

        Smooth weighted round robin (nginx, 2012): each turn every target gains its weight, the richest is chosen
        and pays the sum of weights. Over sum-of-weights turns each is first exactly weight times.
        """
        targets = snapshot.pools[model.pool].targets
        if len(targets) == 1:
            return [targets[0]]
        total = 0
        for target in targets:
            key = (target.pool, target.id)
            self._credit[key] = self._credit.get(key, 0) + target.weight
            total += target.weight
        ranked = sorted(targets, key=lambda target: -self._credit[target.pool, target.id])
        self._credit[ranked[0].pool, ranked[0].id] -= total
        return ranked
