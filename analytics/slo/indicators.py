"""Counts good and bad requests for many objectives and windows, with one query of a rollup."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from analytics.queries import query
from analytics.rows import number_of, numbers_of, text_of
from backends.store.client import StoreClient
from contracts.rules.objectives import Counts, Indicator, Objective

Rollup = Literal["indicators_minute", "indicators_hour"]
_GRAIN_SECONDS: Final[Mapping[Rollup, int]] = {"indicators_minute": 60, "indicators_hour": 3_600}
MINUTES_UP_TO: Final = timedelta(hours=6)  # longer windows are counted by hours, with an error of a few percent


@dataclass(frozen=True, slots=True)
class _Ask:
    """The indicator's parameters; objectives with the same ones are counted together."""

    indicator: Indicator
    ttft: int
    gap: int
    duration: int

    @classmethod
    def of(cls, objective: Objective) -> "_Ask":
        limits = (objective.limit_tenths_ms(each) or 0 for each in ("ttft", "inter_token", "end_to_end"))
        return cls(objective.indicator, *limits)


@dataclass(frozen=True, slots=True)
class _Group:
    """Counts of one tenant's model, route and prompt length class, by window."""

    tenant: str
    model: str
    route: str
    prompt_class: str
    counts: tuple[Counts, ...]

    def is_of(self, objective: Objective) -> bool:
        """Return whether these requests count for an objective."""
        wanted = (objective.tenant, objective.model, objective.route, objective.prompt_class)
        found = (self.tenant, self.model, self.route, self.prompt_class)
        return all(each in ("", other) for each, other in zip(wanted, found, strict=True))


def count_windows(
    store: StoreClient, objectives: Sequence[Objective], windows: Iterable[timedelta], now: datetime
) -> dict[str, dict[timedelta, Counts]]:
    """Return counts of every objective, by id, in windows that end now. Raises StoreUnavailable.

    Windows up to 6 hours begin on a whole minute, longer ones on a whole hour, so they may be longer by up to that.
    """
    wanted = sorted(set(windows))
    found: dict[str, dict[timedelta, Counts]] = {objective.id: {} for objective in objectives}
    if not objectives:
        return found
    by_rollup: dict[Rollup, list[timedelta]] = {
        "indicators_minute": [each for each in wanted if each <= MINUTES_UP_TO],
        "indicators_hour": [each for each in wanted if each > MINUTES_UP_TO],
    }
    for rollup, lengths in by_rollup.items():
        if not lengths:
            continue
        for objective_id, counts in _count(store, objectives, lengths, now, rollup).items():
            found[objective_id].update(zip(lengths, counts, strict=True))
    return found


def _count(
    store: StoreClient, objectives: Sequence[Objective], windows: Sequence[timedelta], now: datetime, rollup: Rollup
) -> dict[str, tuple[Counts, ...]]:
    asks = {ask: number for number, ask in enumerate(dict.fromkeys(map(_Ask.of, objectives)))}
    groups = _read(store, objectives, list(asks), windows, now, rollup)
    nothing = tuple(Counts() for _ in windows)
    sums: dict[str, tuple[Counts, ...]] = {}
    for objective in objectives:
        number = asks[_Ask.of(objective)]
        # A tenant's objective checks only its own groups, which is fast with a thousand tenants.
        of_number = groups.get(number, {})
        tenants = [of_number.get(objective.tenant, [])] if objective.tenant else list(of_number.values())
        mine = [group.counts for each in tenants for group in each if group.is_of(objective)]
        sums[objective.id] = tuple(sum(column, Counts()) for column in zip(*mine, strict=True)) if mine else nothing
    return sums


def _read(
    store: StoreClient,
    objectives: Sequence[Objective],
    asks: Sequence[_Ask],
    windows: Sequence[timedelta],
    now: datetime,
    rollup: Rollup,
) -> dict[int, dict[str, list[_Group]]]:
    grain = _GRAIN_SECONDS[rollup]
    starts = [int((now - window).timestamp()) // grain * grain for window in windows]
    tenants = {objective.tenant for objective in objectives}
    parameters = {
        "rollup": rollup,
        "starts": starts,
        "start": min(starts),
        "end": -(-int(now.timestamp()) // grain) * grain + grain,  # includes the current second
        "tenant": next(iter(tenants)) if len(tenants) == 1 and "" not in tenants else None,
        "by_model": any(objective.model for objective in objectives),
        "by_route": any(objective.route for objective in objectives),
        "by_prompt_class": any(objective.prompt_class for objective in objectives),
        "numbers": list(range(len(asks))),
        "indicators": [ask.indicator for ask in asks],
        "ttft_limits": [ask.ttft for ask in asks],
        "gap_limits": [ask.gap for ask in asks],
        "duration_limits": [ask.duration for ask in asks],
    }
    found: dict[int, dict[str, list[_Group]]] = {}
    for row in store.query(query("indicators"), parameters):
        totals, bads = _padded(row["totals"], windows), _padded(row["bads"], windows)
        counts = tuple(Counts(total, bad) for total, bad in zip(totals, bads, strict=True))
        group = _Group(
            text_of(row["tenant"]), text_of(row["model"]), text_of(row["route"]), text_of(row["prompt_class"]), counts
        )
        found.setdefault(number_of(row["number"]), {}).setdefault(group.tenant, []).append(group)
    return found


def _padded(values: object, windows: Sequence[timedelta]) -> list[int]:
    """Return the sums by window; the array is empty for a sum over no rows."""
    return [int(value) for value in numbers_of(values)] or [0] * len(windows)
