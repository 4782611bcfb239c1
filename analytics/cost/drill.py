"""Costs as a tree: tenant, team, project, tag, user, key, provider, model. Where one stands in it, and what lies below.

A tag is any that requests carry, such as `feature`. Tags, users, keys and providers are not in sums, so questions by
them read requests.
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
_MARGIN: Final = timedelta(hours=2)  # as rollups forget: see `analytics.scope`


@dataclass(frozen=True, slots=True)
class CostPlace:
    """What has been chosen of the tree; `None`: not yet. An empty name stands for what has none at that level.

    `tag` is a value of the tag that `tag_name` names.
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
        """Return the chosen names from the top."""
        named = ((level, getattr(self, level)) for level in LEVELS)
        return tuple((level, name) for level, name in named if name is not None)

    @property
    def is_in_sums(self) -> bool:
        """Return whether sums tell the place's cost: nothing is chosen that only requests have."""
        return all(level not in NOT_IN_SUMS for level, _ in self.chosen)

    @property
    def open_levels(self) -> tuple[CostLevel, ...]:
        """Return the levels that are not chosen, from the top; the first is what lies below."""
        taken = {level for level, _ in self.chosen}
        return tuple(level for level in LEVELS if level not in taken)


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """What a place comes to, and its parts by one level, the most expensive first; they sum to the total.

    `source` is the table it came from.
    """

    level: CostLevel | None
    total: CostSum
    lines: tuple[tuple[str, CostSum], ...]
    source: Source


@dataclass(frozen=True, slots=True)
class CostRange:
    """A stretch of time in a calendar, and when it is asked about: two that differ in this alone are equal."""

    period: Period
    zone: ZoneInfo
    asked_at: datetime = field(compare=False, repr=False)


def cost_range(scope: Scope, zone: ZoneInfo) -> CostRange:
    """Return the range that costs of a scope cover: what its sums cover, but whole hours as they were asked for.

    So a month of Berlin begins at 22:00 or 23:00 UTC and not with UTC's day, for as long as hours are kept. An end
    within an hour is that hour's end: what is to come in it is not there yet.
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
    """Break a place down by one level; by none if `level` is `None`. Raises as `cost_report`.

    `is_quick` stays with sums, which may leave unknown what unpriced requests used.
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
    """Break a place down as `cost_breakdown` does, of sums alone where there are any: what unpriced requests used is
    unknown where sums do not tell it. Raises as `cost_report`.
    """
    return cost_breakdown(store, place, within, level, is_quick=True)


def completed(quick: CostBreakdown, whole: CostBreakdown) -> CostBreakdown:
    """Return a quick answer with what unpriced requests used by an earlier whole one, where these are as many still."""
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
    """Read a place's lines by levels, each with its path, and from which table. Raises as `cost_report`."""
    # A report asks for one tenant, team, project and model; one tag, user, key or provider is picked out of its lines.
    picked = tuple((level, name) for level, name in place.chosen if level in NOT_IN_SUMS and level not in by)
    levels = (*(level for level, _ in picked), *by)
    asked = tuple(f"{TAG}{place.tag_name}" if level == "tag" else level for level in levels)
    question = question_of(place, within, asked)
    report = cost_report(store, question, stays_with_sums=is_quick)
    wanted = tuple(name for _, name in picked)
    depth = len(wanted)
    return [(line.path[depth:], line.sums) for line in report.lines if line.path[:depth] == wanted], report.source


def tag_names(store: StoreClient, place: CostPlace, within: CostRange) -> tuple[str, ...]:
    """Return the tags that requests of a place carry, sorted by name. Raise StoreUnavailable."""
    parameters = {
        "tenant": place.tenant,
        "team": place.team,
        "start": within.period.start_s,
        "end": within.period.end_s,
        "line_limit": _MOST_TAGS,
    }
    return tuple(text_of(row["name"]) for row in store.query(query("tag_names"), parameters))


def question_of(place: CostPlace, within: CostRange, by: tuple[str, ...] = ()) -> CostQuestion:
    """Return the question about a place as far as a report can be asked: tag, user, key and provider are left out."""
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
