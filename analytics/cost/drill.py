"""Costs as a tree with levels tenant, team, project, tag, user, key, provider, model: a place in it and its breakdown.

A tag is any that requests have, such as `feature`. Tags, users, keys and providers are not in rollups, so queries by
them read single requests.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from analytics.cost.question import TAG, CostQuestion, Source
from analytics.cost.report import cost_report
from analytics.cost.sums import CostSum, total_of
from analytics.queries import query
from analytics.rows import text_of
from analytics.scope import HOURS_KEPT, Period, Scope
from backends.store.client import StoreClient

CostLevel = Literal["tenant", "team", "project", "tag", "user", "key", "provider", "model"]
LEVELS: Final[tuple[CostLevel, ...]] = get_args(CostLevel)
NOT_IN_SUMS: Final = frozenset({"tag", "user", "key", "provider"})
DEFAULT_TAG: Final = "feature"
_MOST_TAGS: Final = 100
_HOUR: Final = 3_600
_MARGIN: Final = timedelta(hours=2)  # retention of rollups: see `analytics.scope`


@dataclass(frozen=True, slots=True)
class CostPlace:
    """A place in the tree: the chosen name per level; `None`: not chosen. "" means requests without a name at that
    level.

    `tag` is a value of the tag `tag_name`.
    """

    tenant: str | None = None
    team: str | None = None
    project: str | None = None
    tag: str | None = None
    user: str | None = None
    key: str | None = None
    provider: str | None = None
    model: str | None = None
    tag_name: str = DEFAULT_TAG

    @property
    def chosen(self) -> tuple[tuple[CostLevel, str], ...]:
        """Return the chosen levels and names, from the top."""
        named = ((level, getattr(self, level)) for level in LEVELS)
        return tuple((level, name) for level, name in named if name is not None)

    @property
    def is_in_sums(self) -> bool:
        """Return whether rollups have the place's cost, because no chosen level is only on single requests."""
        return all(level not in NOT_IN_SUMS for level, _ in self.chosen)

    @property
    def open_levels(self) -> tuple[CostLevel, ...]:
        """Return the levels that are not chosen, from the top; the first is the next level of a breakdown."""
        taken = {level for level, _ in self.chosen}
        return tuple(level for level in LEVELS if level not in taken)


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """A place's total cost, and its parts by one level, most expensive first; they sum to the total.

    `source`: the table that was read.
    """

    level: CostLevel | None
    total: CostSum
    lines: tuple[tuple[str, CostSum], ...]
    source: Source


@dataclass(frozen=True, slots=True)
class CostRange:
    """A period in a time zone, and the time of the query, which is excluded from equality."""

    period: Period
    zone: ZoneInfo
    asked_at: datetime = field(compare=False, repr=False)


def cost_range(scope: Scope, zone: ZoneInfo) -> CostRange:
    """Return the range of costs for a scope: rounded outward to whole hours, or to what its rollups cover.

    So a month in Berlin starts at 22:00 or 23:00 UTC, not with the UTC day, while hourly rollups exist. An end within
    an hour is rounded to that hour's end.
    """
    covered = scope.covered
    start_s, end_s = int(scope.start.timestamp()), -(-int(scope.end.timestamp()) // _HOUR) * _HOUR
    is_kept = scope.asked_at - scope.start <= HOURS_KEPT - _MARGIN
    if scope.grain == "day" and not start_s % _HOUR and is_kept:
        return CostRange(Period(scope.start, scope.start + timedelta(seconds=end_s - start_s)), zone, scope.asked_at)
    return CostRange(covered, zone, scope.asked_at)


def cost_breakdown(
    store: StoreClient, place: CostPlace, within: CostRange, level: CostLevel | None, is_quick: bool = False
) -> CostBreakdown:
    """Return the breakdown of a place by one level; only its total if `level` is `None`. Raises as `cost_report`.

    `is_quick` reads only rollups, which may leave the usage of unpriced requests unknown.
    """
    lines, source = read_lines(store, place, within, () if level is None else (level,), is_quick=is_quick)
    return _broken_down(level, lines, source)


def _broken_down(
    level: CostLevel | None, lines: list[tuple[tuple[str, ...], CostSum]], source: Source
) -> CostBreakdown:
    total = total_of(sums for _, sums in lines)
    if level is None:
        return CostBreakdown(None, total, (), source)
    parts = ((path[0], sums) for path, sums in lines)
    ordered = sorted(parts, key=lambda part: (-part[1].priced_pico_usd, -part[1].requests, part[0]))
    return CostBreakdown(level, total, tuple(ordered), source)


def summed_breakdown(store: StoreClient, place: CostPlace, within: CostRange, level: CostLevel | None) -> CostBreakdown:
    """Return a breakdown as `cost_breakdown`, from rollups only if possible; the usage of unpriced requests may be
    unknown.

    Raises as `cost_report`.
    """
    return cost_breakdown(store, place, within, level, is_quick=True)


def completed(quick: CostBreakdown, whole: CostBreakdown) -> CostBreakdown:
    """Fill in the usage of unpriced requests from an earlier complete breakdown, where their number is unchanged."""
    known = dict(whole.lines)
    lines = tuple((name, _completed(sums, known.get(name, CostSum()))) for name, sums in quick.lines)
    total = total_of(sums for _, sums in lines) if lines else _completed(quick.total, whole.total)
    return replace(quick, lines=lines, total=total)


def _completed(sums: CostSum, known: CostSum) -> CostSum:
    if sums.unpriced_requests != known.unpriced_requests:
        return sums
    return replace(
        sums,
        unpriced_input_tokens=known.unpriced_input_tokens,
        unpriced_output_tokens=known.unpriced_output_tokens,
    )


def read_lines(
    store: StoreClient,
    place: CostPlace,
    within: CostRange,
    by: tuple[CostLevel, ...],
    *,
    is_quick: bool = False,
) -> tuple[list[tuple[tuple[str, ...], CostSum]], Source]:
    """Return a place's lines by levels, each with its path, and the table that was read. Raises as `cost_report`."""
    # A report filters by tenant, team, project and model; tags, users, keys and providers are filtered here.
    picked = tuple((level, name) for level, name in place.chosen if level in NOT_IN_SUMS and level not in by)
    levels = (*(level for level, _ in picked), *by)
    asked = tuple(f"{TAG}{place.tag_name}" if level == "tag" else level for level in levels)
    question = question_of(place, within, asked)
    report = cost_report(store, question, stays_with_sums=is_quick)
    wanted = tuple(name for _, name in picked)
    depth = len(wanted)
    return [(line.path[depth:], line.sums) for line in report.lines if line.path[:depth] == wanted], report.source


def tag_names(store: StoreClient, place: CostPlace, within: CostRange) -> tuple[str, ...]:
    """Return the names of tags of a place's requests, sorted. Raises StoreUnavailable."""
    parameters = {
        "tenant": place.tenant,
        "team": place.team,
        "start": within.period.start_s,
        "end": within.period.end_s,
        "line_limit": _MOST_TAGS,
    }
    return tuple(text_of(row["name"]) for row in store.query(query("tag_names"), parameters))


def question_of(place: CostPlace, within: CostRange, by: tuple[str, ...] = ()) -> CostQuestion:
    """Return the report question for a place, without tag, user, key and provider, which reports cannot filter by."""
    return CostQuestion(
        within.period.start,
        within.period.end,
        by=by,
        zone=within.zone,
        tenant=place.tenant,
        team=place.team,
        project=place.project,
        model=place.model,
        asked_at=within.asked_at,
    )
