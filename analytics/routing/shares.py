"""Compares the configured and actual share of requests of each entry of a route (weights, canaries)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analytics.routing.board import RoutingBoard
from analytics.routing.use import Use, by_route

_CHOSEN, _FALLBACK, _ELSEWHERE = "choose", "fallback", "elsewhere"
_RANK: Final[Mapping[str, int]] = {_CHOSEN: 0, _FALLBACK: 1, _ELSEWHERE: 2}


@dataclass(frozen=True, slots=True)
class EntryShare:
    """One entry of a route. Shares are 0 to 1; `None`: not configured, or no request.

    `role` is "choose" (an entry with a weight), "fallback", or "elsewhere": a model that answered and is not an entry,
    because the route was changed or leads to another route with the model. `stated_share` is the weight's share when
    all entries' conditions are met; `condition` is the entry's condition in words.
    """

    route: str
    name: str
    role: str
    weight: int | None
    stated_share: float | None
    use: Use
    taken_share: float | None
    condition: str


def entry_shares(board: RoutingBoard, routes: Sequence[Mapping[str, Any]]) -> tuple[EntryShare, ...]:
    """Compare routes, as listed by the control plane, with a scope's answers. Sorted by route, then role."""
    answered = by_route(board.lines)
    found: list[EntryShare] = []
    for route in routes:
        found += _of_route(str(route["id"]), route["rules"], answered.pop(str(route["id"]), {}))
    for name, models in answered.items():  # deleted routes
        found += _of_route(name, {}, models)
    return tuple(sorted(found, key=lambda one: (one.route, _RANK[one.role], -(one.weight or 0), one.name)))


def _of_route(route: str, rules: Mapping[str, Any], models: dict[str, Use]) -> list[EntryShare]:
    total = sum(use.requests for use in models.values())
    chosen, fallbacks = rules.get("choose", ()), rules.get("fallbacks", ())
    weights = sum(int(entry.get("weight", 1)) for entry in chosen)
    left, found = dict(models), []
    for role, entries in ((_CHOSEN, chosen), (_FALLBACK, fallbacks)):
        for entry in entries:
            name = str(entry.get("model") or entry.get("route") or "")
            # The first of several entries with one model represents them, as records have only the model.
            use = left.pop(name, Use())
            weight = int(entry.get("weight", 1)) if role == _CHOSEN else None
            stated = weight / weights if weight is not None and weights else None
            found.append(_entry(route, name, role, weight, stated, use, total, _condition(entry.get("when", {}))))
    found += [_entry(route, name, _ELSEWHERE, None, None, use, total, "") for name, use in left.items()]
    return found


def _entry(
    route: str, name: str, role: str, weight: int | None, stated: float | None, use: Use, total: int, condition: str
) -> EntryShare:
    taken = use.requests / total if total else None
    return EntryShare(route, name, role, weight, stated, use, taken, condition)


def _condition(when: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_said(value)}" for name, value in when.items())


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return "|".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
