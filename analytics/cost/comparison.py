"""Compares the costs of two periods: the change of each part, and the drivers of the total change."""

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
    """One part in both periods. A part that is missing in one of them has zeros there."""

    label: str
    before: CostSum
    after: CostSum

    @property
    def change_usd(self) -> Decimal | None:
        """Return the cost after minus before in USD; `None` if either is unknown."""
        first, last = self.before.cost_pico_usd, self.after.cost_pico_usd
        return None if first is None or last is None else usd(last - first)

    @property
    def change_share(self) -> float | None:
        """Return the change as a share of the cost before; `None` if that was 0 or a cost is unknown."""
        first, last = self.before.cost_pico_usd, self.after.cost_pico_usd
        return None if first is None or last is None or not first else (last - first) / first


@dataclass(frozen=True, slots=True)
class CostComparison:
    """The parts of both periods, largest change first, and their totals."""

    before: Period
    after: Period
    lines: tuple[CostChange, ...]
    total: CostChange


def compare_costs(
    store: StoreClient, place: CostPlace, within: CostRange, before: Period, level: CostLevel | None
) -> CostComparison:
    """Compare the costs of a place in a range with an earlier period, by one level. Raises as `cost_report`."""
    by: tuple[CostLevel, ...] = () if level is None else (level,)
    earlier, later = _both(store, place, within, before, by)
    total = CostChange("", total_of(sums for _, sums in earlier), total_of(sums for _, sums in later))
    lines = () if level is None else _changes(_grouped(earlier), _grouped(later))
    return CostComparison(before, within.period, lines, total)


def cost_drivers(store: StoreClient, place: CostPlace, within: CostRange, before: Period) -> Change:
    """Decompose the change of priced cost exactly into volume, mix, cache and price. Raises as `cost_report`."""
    earlier, later = _both(store, place, within, before, ("model",))
    return explain(_uses(earlier), _uses(later))


def _both(
    store: StoreClient, place: CostPlace, within: CostRange, before: Period, by: tuple[CostLevel, ...]
) -> tuple[Lines, Lines]:
    # The usage of unpriced requests does not matter here.
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
