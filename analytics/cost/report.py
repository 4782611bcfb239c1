"""The cost report: lines by whoever is to pay, at every level the sum of the lines below it, to the pico-dollar."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from analytics.cost.question import TAG, CostQuestion, Source
from analytics.cost.sums import CostSum, total_of
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest

MAX_LINES: Final = 200_000  # more than a spreadsheet opens with ease; filter, or take fewer levels

LineKey = tuple[tuple[str, ...], int]  # the path, and the start of the period in Unix seconds


@dataclass(frozen=True, slots=True)
class CostLine:
    """One group in one period. `path` has a label per level of the question; an empty one is what had none."""

    path: tuple[str, ...]
    period: Period
    sums: CostSum


@dataclass(frozen=True, slots=True)
class CostReport:
    """The answer. `lines` are the finest groups, in order of path and period; groups without requests have none.

    `source` is the table it came from.
    """

    question: CostQuestion
    source: Source
    lines: tuple[CostLine, ...]

    @property
    def total(self) -> CostSum:
        """Add all lines up."""
        return total_of(line.sums for line in self.lines)

    def level(self, depth: int) -> tuple[CostLine, ...]:
        """Give the lines of the first `depth` levels; 0 gives the periods' totals, the number of levels `lines`."""
        found: dict[LineKey, CostLine] = {}
        for line in self.lines:
            path = line.path[:depth]
            name = (path, line.period.start_s)
            known = found.get(name)
            found[name] = CostLine(path, line.period, line.sums if known is None else known.sums + line.sums)
        return tuple(found[name] for name in sorted(found))


def cost_report(store: StoreClient, question: CostQuestion) -> CostReport:
    """Answer from the coarsest table that does so exactly.

    What unpriced requests used is read from the requests themselves, where there are any. Raises InvalidRequest where
    the range is no longer held or has too many lines, StoreUnavailable.
    """
    source = question.source
    question.check_kept(source)
    if source == "requests":
        check_not_deleted(store, question)
        found = _read(store, question, "cost_requests", only_unpriced=False)
    else:
        found = _read(store, question, "cost_rollup", rollup=source)
        if any(sums.unpriced_requests for sums in found.values()):
            _add_unpriced_tokens(found, _read(store, question, "cost_requests", only_unpriced=True))
    periods = {period.start_s: period for period in question.periods}
    return CostReport(
        question, source, tuple(CostLine(path, periods[start], found[path, start]) for path, start in sorted(found))
    )


def _read(store: StoreClient, question: CostQuestion, name: str, **more: object) -> dict[LineKey, CostSum]:
    starts = [period.start_s for period in question.periods]
    parameters = {
        **more,
        "start": starts[0],
        "end": int(question.end.timestamp()),
        "starts": starts,
        "by": [TAG if level.startswith(TAG) else level for level in question.by],
        "tag": question.tag,
        "tenant": question.tenant,
        "team": question.team,
        "project": question.project,
        "model": question.model,
        "line_limit": MAX_LINES + 1,
    }
    rows = store.query(query(name), parameters)
    if len(rows) > MAX_LINES:
        raise InvalidRequest(
            f"the report has more than {MAX_LINES} lines; take fewer levels, a coarser grain or one tenant", param="by"
        )
    return {(_path(row, question), number_of(row["period_start"])): CostSum.from_row(row) for row in rows}


def _path(row: Mapping[str, object], question: CostQuestion) -> tuple[str, ...]:
    return tuple(text_of(row["tag_label" if level.startswith(TAG) else f"{level}_label"]) for level in question.by)


def _add_unpriced_tokens(found: dict[LineKey, CostSum], unpriced: Mapping[LineKey, CostSum]) -> None:
    for name, sums in found.items():
        asked = unpriced.get(name, CostSum())
        # The rollup knows how many there were: where fewer are left, what they used is unknown.
        if asked.unpriced_requests == sums.unpriced_requests:
            found[name] = replace(sums, unpriced_tokens=asked.unpriced_tokens)


def check_not_deleted(store: StoreClient, question: CostQuestion) -> None:
    """Make sure that no rule has deleted requests of the range. Raises InvalidRequest saying up to when one has."""
    (row,) = store.query(query("deleted_requests"), {"tenant": question.tenant})
    deleted_until = number_of(row["deleted_until"])
    if deleted_until > question.start.timestamp():
        raise InvalidRequest(
            f"single requests before {datetime.fromtimestamp(deleted_until, UTC):%Y-%m-%d %H:%M} UTC have been deleted "
            f"by a retention rule of {text_of(row['deleted_tenant'])!r}; begin later, or ask by tenant, team, project "
            "and model alone for whole days in UTC",
            param="start",
        )
