"""Two periods of one place side by side: by how much each part changed, and what moved the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from analytics.anomaly.drivers import Change, Use, explain
from analytics.cost.drill import CostLevel, CostPlace, CostRange, read_lines
from analytics.cost.sums import CostSum, total_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.pricing.money import usd

Lines = Sequence[tuple[tuple[str, ...], CostSum]]


@dataclass(frozen=True, slots=True)
class CostChange:
    """One part before and after. A part that was not there before, or is gone, has zeros on that side."""

    label: str
    before: CostSum
    after: CostSum

    @property
    def change_usd(self) -> Decimal | None:
        """Return after less before; `None` if the cost of either is not known."""
        first, last = self.before.cost_pico_usd, self.after.cost_pico_usd
        return None if first is None or last is None else usd(last - first)

    @property
    def change_share(self) -> float | None:
        """Return the change as a share of what was before; `None` if there was nothing, or one is not known."""
        first, last = self.before.cost_pico_usd, self.after.cost_pico_usd
        return None if first is None or last is None or not first else (last - first) / first


@dataclass(frozen=True, slots=True)
class CostComparison:
    """Parts of either period, the largest change first."""

    before: Period
    after: Period
    lines: tuple[CostChange, ...]
    total: CostChange


def compare_costs(
    store: StoreClient, place: CostPlace, within: CostRange, before: Period, level: CostLevel | None
) -> CostComparison:
    """Compare a place's range with a period before, by one level. Each is read once. Raises as `cost_report`."""
    by: tuple[CostLevel, ...] = () if level is None else (level,)
    earlier, later = _both(store, place, within, before, by)
    total = CostChange("", total_of(sums for _, sums in earlier), total_of(sums for _, sums in later))
    lines = () if level is None else _changes(_grouped(earlier), _grouped(later))
    return CostComparison(before, within.period, lines, total)


def cost_drivers(store: StoreClient, place: CostPlace, within: CostRange, before: Period) -> Change:
    """Split the change of what has a price exactly by what its models were used for. Raises as `cost_report`."""
    earlier, later = _both(store, place, within, before, ("model",))
    return explain(_uses(earlier), _uses(later))


def _both(
    store: StoreClient, place: CostPlace, within: CostRange, before: Period, by: tuple[CostLevel, ...]
) -> tuple[Lines, Lines]:
    # What unpriced requests used changes nothing here.
    later, _ = read_lines(store, place, within, by, is_quick=True)
    earlier, _ = read_lines(store, place, CostRange(before, within.zone, within.asked_at), by, is_quick=True)
    return earlier, later


def _grouped(lines: Lines) -> dict[str, CostSum]:
    return {path[0]: sums for path, sums in lines}


def _changes(before: Mapping[str, CostSum], after: Mapping[str, CostSum]) -> tuple[CostChange, ...]:
    nothing = CostSum()
    found = (CostChange(label, before.get(label, nothing), after.get(label, nothing)) for label in {**after, **before})
    return tuple(sorted(found, key=lambda one: (-abs(_priced_change(one)), one.label)))


def _priced_change(change: CostChange) -> int:
    return change.after.priced_pico_usd - change.before.priced_pico_usd


def _uses(lines: Lines) -> dict[str, Use]:
    return {
        path[0]: Use(
            requests=sums.admitted,
            input_tokens=sums.input_tokens,
            cached=min(sums.cached_input_tokens, sums.input_tokens),
            output_tokens=sums.output_tokens,
            pico_usd=sums.priced_pico_usd,
        )
        for path, sums in lines
    }
