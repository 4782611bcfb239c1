"""Resolves a route to models, best first, with the reasons why others are excluded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from contracts.rules.holds import HeldFor, hold_on, is_canary
from contracts.serving.routes import Condition
from gateway.routing.routes.conditions import why_not, why_not_read, why_not_there, why_too_slow
from gateway.routing.routes.facts import UNREAD, ModelState, RequestFacts
from gateway.routing.routes.route_plan import CompiledEntry, CompiledRoute, RouteCandidate
from gateway.routing.routes.turns import Turns


@dataclass(slots=True)
class Order:
    """A request's candidates, best first. `skipped` has, by label, why an entry is not among them.

    `may_pass`: at another time the same request could be accepted.
    """

    legs: list[RouteCandidate] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    may_pass: bool = False
    chosen: int = 0  # number of legs that come from the choices, before any fallback
    late: list[str] = field(default_factory=list)  # labels of those put last: predicted to take too long
    probe: str = ""  # the first one, although its answers were late: tests whether they still are


class Resolver:
    """Computes one request's order. `turns` counts turns; if `takes_turns` is false, it is only read."""

    def __init__(self, asked: RequestFacts, standing: ModelState, turns: Turns, *, takes_turns: bool = True) -> None:
        self._asked = asked
        self._standing = standing
        self._turns = turns
        self._takes_turns = takes_turns
        self._slow: dict[int, RouteCandidate] = {}  # by identity: excluded only because of their latency
        self._to_probe: set[int] = set()  # the ones of these that are used anyway, as probes

    def order(self, fork: CompiledRoute) -> Order:
        """Return a route's candidates in the order to try them; empty if no entry accepts the request."""
        found = Order()
        for leg in self._legs(fork, (), found, takes_turn=self._takes_turns, is_top=True):
            # A second mention adds nothing: the same model at targets that were tried.
            if not any(leg.model is known.model and leg.within == known.within for known in found.legs):
                found.legs.append(leg)
        self._settle_probe(found)
        budgets = (fork.latency_budget_ms, self._asked.latency_budget_ms)
        stated = [budget for budget in budgets if budget is not None]
        if stated and fork.cascade is None:  # a cascade keeps its order, and ends when its time is over
            self._put_late_last(found, min(stated) / 1000)
        return found

    def _settle_probe(self, found: Order) -> None:
        """Probe the first candidate that is too slow for its condition, and exclude all others that are too slow."""
        if not self._slow:
            return
        first = found.legs[0] if found.legs else None
        if first is not None and id(first) in self._to_probe:
            self._probe(found, first)
        for place, leg in reversed(list(enumerate(found.legs))):
            if leg is not first and id(leg) in self._to_probe:
                del found.legs[place]
                found.chosen -= place < found.chosen
        for leg in self._slow.values():
            if leg is not first:
                self._standing.leave_out(leg.model)

    def _probe(self, found: Order, leg: RouteCandidate) -> None:
        self._standing.begin_probe(leg.model)
        found.probe = leg.label

    def why_closed(self, fork: CompiledRoute, branch: CompiledEntry, outer: tuple[Condition, ...] = ()) -> str:
        """Return why a fork's branch leads to no model for the request; empty if it leads to one."""
        return self._why_closed(fork, branch, outer)[0]

    def _legs(
        self, fork: CompiledRoute, outer: tuple[Condition, ...], found: Order, *, takes_turn: bool, is_top: bool = False
    ) -> Iterator[RouteCandidate]:
        """Yield a fork's candidates. `outer` are the conditions of the branches that led to it; they apply too."""
        open_now = self._without_frozen(
            fork, [branch for branch in fork.choose if self._is_open(fork, branch, outer, found)], found
        )
        if fork.cascade is None:
            conversation = self._asked.conversation
            turns = self._turns
            open_now = turns.order(fork.id, open_now, conversation, takes_turn=takes_turn, among=fork.choose)
        yield from self._along(open_now, outer, found, takes_turn=takes_turn)
        if is_top:
            found.chosen = len(found.legs)
        behind = [branch for branch in fork.fallbacks if self._is_open(fork, branch, outer, found)]
        yield from self._along(behind, outer, found, takes_turn=takes_turn and not open_now)

    def _along(
        self, branches: Sequence[CompiledEntry], outer: tuple[Condition, ...], found: Order, *, takes_turn: bool
    ) -> Iterator[RouteCandidate]:
        for number, branch in enumerate(branches):
            if isinstance(branch.to, RouteCandidate):
                yield branch.to
            else:  # only the branch that is used first takes a turn there: others look ahead
                takes = takes_turn and number == 0
                yield from self._legs(branch.to, (*outer, branch.when), found, takes_turn=takes)

    def _without_frozen(self, fork: CompiledRoute, branches: list[CompiledEntry], found: Order) -> list[CompiledEntry]:
        """Exclude canaries that an objective at risk freezes, unless there is nothing else to choose.

        Objectives name the model that is served, and canaries are other models: any of the fork's models may be at
        risk.
        """
        asked = self._asked
        others = [branch for branch in branches if not is_canary(branch.label)] if asked.holds else branches
        if not others or len(others) == len(branches):
            return branches
        hold = hold_on(asked.holds, "freeze_canaries", HeldFor(asked.tenant, asked.route, fork.models), asked.at_ns)
        if hold is None:
            return branches
        why = f"frozen while objective {hold.slo!r} is at risk"
        found.skipped |= {branch.label: why for branch in branches if is_canary(branch.label)}
        return others

    def _is_open(self, fork: CompiledRoute, branch: CompiledEntry, outer: tuple[Condition, ...], found: Order) -> bool:
        """Return whether a branch leads to any model for this request, and record why it does not."""
        reason, may_pass = self._why_closed(fork, branch, outer)
        if reason:
            found.skipped.setdefault(branch.label, reason)
            found.may_pass |= may_pass
        return not reason

    def _why_closed(self, fork: CompiledRoute, branch: CompiledEntry, outer: tuple[Condition, ...]) -> tuple[str, bool]:
        asked, when = self._asked, branch.when
        reason = why_not(when, asked)
        if reason:
            return reason, bool(when.hours or when.days)
        reason = why_not_read(when, asked.readings.get(fork.id, UNREAD))
        if reason:
            return reason, False
        conditions = (*outer, when)
        if isinstance(branch.to, CompiledRoute):
            inner = branch.to
            closed = [self._why_closed(inner, one, conditions) for one in (*inner.choose, *inner.fallbacks)]
            if all(reason for reason, _ in closed):
                return f"none of its entries: {closed[0][0]}", any(may_pass for _, may_pass in closed)
            return "", False
        return self._why_leg_closed(branch.to, conditions)

    def _why_leg_closed(self, leg: RouteCandidate, conditions: tuple[Condition, ...]) -> tuple[str, bool]:
        model = leg.model
        limit, context = self._asked.output_limit, model.context_tokens
        if limit is not None and context is not None and limit > context:
            return f"max_tokens is {limit}; the context of {model.id!r} is {context} tokens", False
        for condition in conditions:
            reason = why_not_there(condition, model, self._standing)
            if reason:
                passes = condition.min_budget_left is not None or condition.ttft_objective_ms is not None
                return reason, passes
        reason = next(filter(None, [why_too_slow(condition, model, self._standing) for condition in conditions]), "")
        if reason and self._takes_turns:
            self._slow[id(leg)] = leg
            if self._standing.may_probe(model):
                self._to_probe.add(id(leg))
                return "", False
        return reason, bool(reason)

    def _probed_of(self, found: Order, late: set[int]) -> RouteCandidate | None:
        """Return which of the late candidates that would come first is probed; the others are excluded."""
        before = list(takewhile(lambda leg: id(leg) in late, found.legs))
        probed = next((leg for leg in before if self._standing.may_probe(leg.model)), None)
        if probed is not None:
            self._probe(found, probed)
        for leg in before:
            if leg is not probed:
                self._standing.leave_out(leg.model)
        return probed

    def _put_late_last(self, found: Order, budget_seconds: float) -> None:
        """Keep the order among candidates that are predicted to be in time or are unknown; then the fastest.

        A first candidate whose probe is due stays first.
        """
        rest = found.legs[1:] if found.probe else found.legs
        predicted = [(self._standing.answer_seconds(leg), leg) for leg in rest]
        late = [(seconds, leg) for seconds, leg in predicted if seconds is not None and seconds > budget_seconds]
        if not late:
            return
        probed = self._probed_of(found, {id(leg) for _, leg in late})
        late.sort(key=lambda pair: pair[0])
        _move_to_end(found, [leg for _, leg in late if leg is not probed])
        if probed is not None:
            found.legs.remove(probed)
            found.legs.insert(0, probed)


def _move_to_end(found: Order, late: list[RouteCandidate]) -> None:
    found.late = [leg.label for leg in late]
    is_late = {id(leg) for leg in late}
    found.legs = [leg for leg in found.legs if id(leg) not in is_late] + late
