"""Canaries and weights: which share of a route's requests each entry is stated to take, and which it took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analytics.routing.board import RoutingBoard
from analytics.routing.use import Use, by_route

_CHOSEN, _FALLBACK, _ELSEWHERE = "choose", "fallback", "elsewhere"
_RANK: Final[Mapping[str, int]] = {_CHOSEN: 0, _FALLBACK: 1, _ELSEWHERE: 2}


@dataclass(frozen=True, slots=True)
class EntryShare:
    """One way of a route. Shares are 0 to 1; `None`: nothing is stated, or the route had no request.

    `role` is "choose" (it shares the requests by weight), "fallback", or "elsewhere": a model that answered and is no
    entry now, because the route was another then or leads on to a route that has it. `stated_share` is what the weight
    comes to where every entry's condition holds; `condition` says when that is.
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
    """Compare routes, as the control plane lists them, with who answered in a scope. Sorted by route, then by role."""
    answered = by_route(board.lines)
    found: list[EntryShare] = []
    for route in routes:
        found += _of_route(str(route["id"]), route["rules"], answered.pop(str(route["id"]), {}))
    for name, models in answered.items():  # routes that are gone
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
            # Of several entries with one model the first stands for them: records name the model alone.
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
