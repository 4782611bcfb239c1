"""The counters of a key and model, computed once and cached while the rules are unchanged."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from contracts.access.identity import Identity
from contracts.rules.limits import BudgetSpec, LimitSpec, Rule
from contracts.serving.configuration import Snapshot
from gateway.limits.budgets.budget import BudgetCounter
from gateway.limits.counters.base import Counter, CounterStore, LoneQuickCounter, QuickCounter
from gateway.limits.counters.sliding import SlidingCounter
from gateway.limits.demand import (
    GPU,
    INPUT,
    MONEY,
    OUTPUT,
    PLACE,
    REQUESTS,
    TOKENS,
    USED_BY_OUTPUT,
    USED_BY_TOKENS,
    Amounts,
)

Line: TypeAlias = tuple[Counter, int]  # a counter, and the index of its metric among the amounts

_NO_BOUND: Final = 1 << 100
_MAX_PLANS: Final = 200_000


class Lines:
    """The counters that one request passes, with precomputed bounds. Immutable."""

    __slots__ = (
        "all",
        "_bounds",
        "in_turn",
        "budgets",
        "others",
        "places",
        "windows",
        "capping",
        "counts_gpu",
        "counts_money",
        "counts_tokens",
        "most_input",
        "quick",
        "requests",
        "tokens",
    )

    def __init__(self, lines: Sequence[Line]) -> None:
        # By kind: windows, budgets, others. A loop over counters of one kind takes half the time of a mixed one.
        self.all = lines
        self.in_turn = lines = sorted(lines, key=_kind)
        # The counters, if all of them can be charged in the call that asks for room.
        self.quick: Sequence[QuickCounter] | None = None
        if all(counter.takes_at_once for counter, _ in lines):
            self.quick = [cast(QuickCounter, counter) for counter, _ in lines]
        self.windows = [(counter, place) for counter, place in lines if isinstance(counter, SlidingCounter)]
        self.budgets = [(counter, place) for counter, place in lines if isinstance(counter, BudgetCounter)]
        rest = lines[len(self.windows) + len(self.budgets) :]
        self.others = [(cast(LoneQuickCounter, counter), place) for counter, place in rest]
        self.places = tuple([place for _, place in lines])
        places = set(self.places)
        # The lowest bound of any rule for each metric: an amount within it needs no further check.
        bounds: dict[int, int] = {}
        for counter, place in lines:
            bounds[place] = min(bounds.get(place, _NO_BOUND), counter.rule.amount)
        self._bounds = list(bounds.items())
        # The maximum that can ever be allowed.
        self.most_input = min(bounds.get(TOKENS, _NO_BOUND), bounds.get(INPUT, _NO_BOUND))
        self.counts_money = MONEY in places
        self.counts_gpu = GPU in places
        self.counts_tokens = not places.isdisjoint(USED_BY_TOKENS)
        # Counters that can cut an answer short: all that output uses up.
        self.capping = tuple(line for line in lines if line[1] in USED_BY_OUTPUT)
        # Indices of the lines that response headers show.
        self.requests = _windows_of(lines, (REQUESTS,))
        self.tokens = _windows_of(lines, (INPUT, OUTPUT, TOKENS))

    def allow(self, amounts: Amounts) -> bool:
        """Return whether every rule would allow its amount if nothing else were counted."""
        for place, bound in self._bounds:
            if amounts[place] > bound:
                return False
        return True

    def only(self, places: Sequence[int]) -> "Lines":
        """Return only the counters of these metrics."""
        return Lines([line for line in self.all if line[1] in places])

    def without(self, place: int) -> "Lines":
        """Return all counters except those of one metric."""
        return Lines([line for line in self.all if line[1] != place])


class LimitPlan:
    """The counters that a key's requests for a model pass, and the rules that depend on more of the request."""

    __slots__ = ("_fixed", "_loose", "is_empty")

    def __init__(self, lines: Sequence[Line], loose: tuple[Rule, ...]) -> None:
        self._fixed = Lines(lines)
        self._loose = loose  # by end user, tag or conversation
        self.is_empty = not lines and not loose

    @property
    def fixed(self) -> Lines | None:
        """Return the counters that every such request passes; `None` if some depend on more of the request."""
        return None if self._loose else self._fixed

    def lines_for(self, store: CounterStore, who: Identity, model: str, conversation: str) -> Lines:
        """Return all counters that this request passes."""
        if not self._loose:
            return self._fixed
        more: list[Line] = []
        for rule in self._loose:
            subject = rule.scope.subject_of(who, model, conversation)
            if subject is not None:
                more.append((store.open(rule, subject), PLACE[rule.metric]))
        return Lines([*self._fixed.all, *more]) if more else self._fixed


class LimitPlans:
    """Plans by key and model, for one snapshot's rules."""

    def __init__(self, store: CounterStore) -> None:
        self._store = store
        self._generation = store.generation
        self._limits: tuple[LimitSpec, ...] = ()
        self._budgets: tuple[BudgetSpec, ...] = ()
        self._by_tenant: dict[str, list[Rule]] = {}
        self._plans: OrderedDict[tuple[str, str, str], LimitPlan] = OrderedDict()

    def plan_for(self, who: Identity, model: str, snapshot: Snapshot) -> LimitPlan:
        """Return the plan of a key's requests for a model."""
        if snapshot.limits is not self._limits or snapshot.budgets is not self._budgets:
            self._take_rules(snapshot)
        elif self._generation != self._store.generation:
            self._generation = self._store.generation
            self._plans.clear()
        rules = self._by_tenant.get(who.tenant)
        if rules is None:
            return _NO_PLAN
        name = (who.tenant, who.key_id, model)
        plan = self._plans.get(name)
        if plan is None:
            plan = self._plans[name] = self._make(rules, who, model)
            if len(self._plans) > _MAX_PLANS:
                self._plans.popitem(last=False)
        return plan

    def _take_rules(self, snapshot: Snapshot) -> None:
        self._limits, self._budgets = snapshot.limits, snapshot.budgets
        self._generation = self._store.generation
        self._plans.clear()
        self._by_tenant = {}
        every: list[Rule] = [*snapshot.limits, *snapshot.budgets]
        for rule in every:
            self._by_tenant.setdefault(rule.scope.tenant, []).append(rule)

    def _make(self, rules: Sequence[Rule], who: Identity, model: str) -> LimitPlan:
        lines: list[Line] = []
        loose: list[Rule] = []
        for rule in rules:
            if not rule.scope.is_fixed:
                if not rule.scope.model or rule.scope.model == model:
                    loose.append(rule)
                continue
            subject = rule.scope.subject_of(who, model)
            if subject is not None:
                lines.append((self._store.open(rule, subject), PLACE[rule.metric]))
        return LimitPlan(lines, tuple(loose))


def _kind(line: Line) -> int:
    counter = line[0]
    return 0 if isinstance(counter, SlidingCounter) else 1 if isinstance(counter, BudgetCounter) else 2


def _windows_of(lines: Sequence[Line], places: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the lines that count one of the metrics in a window."""
    return tuple(
        number
        for number, (counter, place) in enumerate(lines)
        if place in places and isinstance(counter.rule, LimitSpec) and counter.rule.window is not None
    )


_NO_PLAN: Final = LimitPlan((), ())
