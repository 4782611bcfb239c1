"""The input of an evaluation: one read of the store and the control database, and the type of finding functions.

Each kind of rule reads all tenants with one grouped query, however many rules there are; `by_rule` then selects each
rule's own tenant's findings.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Generic, Protocol, TypeAlias, TypeVar

from algorithms.abuse.incident import Incident
from analytics.prices.refresh import PriceRefresh
from analytics.slo.indicators import count_windows
from backends.control.budget_spending import BudgetSpending
from backends.store.client import StoreClient
from contracts.control import Reconciliation
from contracts.rules.alerts import Finding, Rule
from contracts.rules.objectives import BURN_WINDOWS, BurnPair, Counts, Objective, burning_pairs
from contracts.rules.periods import Forecast, forecast

ItemT = TypeVar("ItemT")
Findings: TypeAlias = Mapping[str, Sequence[Finding]]  # by rule id
# (amount, used, counting since, now, end of the period or None); times in Unix nanoseconds.
Projection: TypeAlias = Callable[[int, int, int, int, int | None], Forecast]


class SpendGrowth(Protocol):
    """The key, user and model whose spending grew most."""

    @property
    def key(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def more_usd(self) -> Decimal: ...
    @property
    def requests(self) -> int: ...
    @property
    def action(self) -> str: ...


class Anomaly(Protocol):
    """A day on which a tenant's spending was unusual, with its main driver."""

    @property
    def tenant(self) -> str: ...
    @property
    def day(self) -> date: ...
    @property
    def observed_usd(self) -> Decimal: ...
    @property
    def expected_usd(self) -> Decimal: ...
    @property
    def driver(self) -> str: ...  # such as "volume", "mix", "price", "cache"
    @property
    def until(self) -> datetime | None: ...  # if the day is not over
    @property
    def contributor(self) -> "SpendGrowth | None": ...


@dataclass(frozen=True, slots=True)
class GpuHour:
    """One GPU's hour: how long engines ran on it, and how much of that time is unexplained."""

    device: str
    wall_ns: int
    unexplained_ns: int


GpuHours: TypeAlias = Callable[[datetime], Sequence[GpuHour]]  # called with the hour's start
AnomalySource: TypeAlias = Callable[[StoreClient, datetime], Sequence[Anomaly]]
PriceSource: TypeAlias = Callable[[StoreClient, datetime], PriceRefresh]


@dataclass(slots=True)
class AlertInputs:
    """The input of one evaluation, for all kinds of rules. Control database rows are all from the same moment."""

    store: StoreClient
    now: datetime
    standings: Sequence[BudgetSpending] = ()
    objectives: Sequence[Objective] = ()
    made_at: Mapping[str, datetime] = field(default_factory=dict)  # when each rule was created
    project: Projection = forecast
    anomalies: AnomalySource | None = None
    gpu_hours: GpuHours | None = None
    incidents: Sequence[Incident] = ()  # open incidents of abuse
    # Hard budgets that refused a request: (budget, subject, period start in Unix ns) to their amount then.
    refusing: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    reconciliations: Sequence[Reconciliation] = ()  # of providers' bills
    prices: PriceSource | None = None
    counts: Mapping[str, Mapping[timedelta, Counts]] = field(default_factory=dict)  # of objectives, once read
    _burning: list[tuple[Objective, tuple[BurnPair, ...]]] | None = None

    def burning(self) -> list[tuple[Objective, tuple[BurnPair, ...]]]:
        """Return the burning objectives with their burning pairs of windows, most urgent first; read once."""
        if self._burning is None:
            counts = count_windows(self.store, self.objectives, BURN_WINDOWS, self.now)
            self.counts = counts
            pairs = ((each, burning_pairs(each, counts[each.id])) for each in self.objectives)
            self._burning = [(objective, held) for objective, held in pairs if held]
        return self._burning

    @property
    def now_s(self) -> int:
        """Return the time of the evaluation in Unix seconds."""
        return int(self.now.timestamp())


Source: TypeAlias = Callable[[AlertInputs, Sequence[Rule]], Findings]


class ByTenant(Generic[ItemT]):
    """An index by tenant, so that a thousand rules need not each scan all items."""

    def __init__(self, items: Iterable[tuple[str, ItemT]]) -> None:
        self._all: list[ItemT] = []
        self._of_tenant: dict[str, list[ItemT]] = defaultdict(list)
        for tenant, item in items:
            self._all.append(item)
            self._of_tenant[tenant].append(item)

    def of(self, rule: Rule) -> Sequence[ItemT]:
        """Return the items of a rule's tenant; all items for a rule of the installation."""
        return self._of_tenant.get(rule.tenant, ()) if rule.tenant else self._all


def by_rule(rules: Iterable[Rule], findings: Iterable[Finding]) -> dict[str, Sequence[Finding]]:
    """Return, by rule id, the findings about the rule's tenant; all findings for rules of the installation."""
    sorted_out = ByTenant((finding.tenant, finding) for finding in findings)
    return {rule.id: sorted_out.of(rule) for rule in rules}
