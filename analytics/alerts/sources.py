"""Input of findings: one read of the store and the control database, and the signature of each kind's function.

Every kind is answered for all tenants with one grouped read, whatever the number of rules; `by_rule` then hands each
rule its own tenant's findings.
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
from backends.control.budget_standings import BudgetStanding
from backends.store.client import StoreClient
from contracts.control import Reconciliation
from contracts.rules.alerts import Finding, Rule
from contracts.rules.objectives import BURN_WINDOWS, BurnPair, Counts, Objective, burning_pairs
from contracts.rules.periods import Forecast, forecast

ItemT = TypeVar("ItemT")
Findings: TypeAlias = Mapping[str, Sequence[Finding]]  # by rule id
# amount, used, counting since, now, end of the period (None: it has none); times in Unix nanoseconds.
Projection: TypeAlias = Callable[[int, int, int, int, int | None], Forecast]


class Grown(Protocol):
    """The key, user and model by which spending grew most."""

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
    """A day on which a tenant spent otherwise than its own past lets expect, and what drove that."""

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
    def contributor(self) -> "Grown | None": ...


@dataclass(frozen=True, slots=True)
class GpuHour:
    """One GPU's hour: how long engines lived on it, and how much of that no line of the ledger explains."""

    device: str
    wall_ns: int
    unexplained_ns: int


GpuHours: TypeAlias = Callable[[datetime], Sequence[GpuHour]]  # given the hour's beginning
AnomalySource: TypeAlias = Callable[[StoreClient, datetime], Sequence[Anomaly]]
PriceSource: TypeAlias = Callable[[StoreClient, datetime], PriceRefresh]


@dataclass(slots=True)
class Look:
    """One look: what every kind of rule may need. What was read of the control database is as of the same moment."""

    store: StoreClient
    now: datetime
    standings: Sequence[BudgetStanding] = ()
    objectives: Sequence[Objective] = ()
    made_at: Mapping[str, datetime] = field(default_factory=dict)  # when each rule was made
    project: Projection = forecast
    anomalies: AnomalySource | None = None
    gpu_hours: GpuHours | None = None
    incidents: Sequence[Incident] = ()  # of abuse, that go on
    # The hard budgets that refused a request: budget, subject and period start (Unix ns) to the amount they had then.
    refusing: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    reconciliations: Sequence[Reconciliation] = ()  # of providers' bills
    prices: PriceSource | None = None
    counts: Mapping[str, Mapping[timedelta, Counts]] = field(default_factory=dict)  # of objectives, once they are read
    _burning: list[tuple[Objective, tuple[BurnPair, ...]]] | None = None

    def burning(self) -> list[tuple[Objective, tuple[BurnPair, ...]]]:
        """Return the objectives that burn with the pairs that hold, the most urgent first; read once in a look."""
        if self._burning is None:
            counts = count_windows(self.store, self.objectives, BURN_WINDOWS, self.now)
            self.counts = counts
            pairs = ((each, burning_pairs(each, counts[each.id])) for each in self.objectives)
            self._burning = [(objective, held) for objective, held in pairs if held]
        return self._burning

    @property
    def now_s(self) -> int:
        """Return the moment in Unix seconds."""
        return int(self.now.timestamp())


Source: TypeAlias = Callable[[Look, Sequence[Rule]], Findings]


class ByTenant(Generic[ItemT]):
    """Things that each concern one tenant, at hand by rule: a thousand rules must not each go through all of them."""

    def __init__(self, items: Iterable[tuple[str, ItemT]]) -> None:
        self._all: list[ItemT] = []
        self._of_tenant: dict[str, list[ItemT]] = defaultdict(list)
        for tenant, item in items:
            self._all.append(item)
            self._of_tenant[tenant].append(item)

    def of(self, rule: Rule) -> Sequence[ItemT]:
        """Return those of a rule's tenant; a rule of the platform gets all."""
        return self._of_tenant.get(rule.tenant, ()) if rule.tenant else self._all


def by_rule(rules: Iterable[Rule], findings: Iterable[Finding]) -> dict[str, Sequence[Finding]]:
    """Return each rule the findings about its tenant; the platform's rules get all."""
    sorted_out = ByTenant((finding.tenant, finding) for finding in findings)
    return {rule.id: sorted_out.of(rule) for rule in rules}
