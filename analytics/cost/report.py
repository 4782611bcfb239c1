"""The cost report: cost by payer at several levels, where each line is the exact sum of the lines below it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import repeat
from typing import Final

from analytics.cost.attempts import FurtherAttempts
from analytics.cost.corrections import Correction
from analytics.cost.question import TAG, CostQuestion, Source
from analytics.cost.sums import CostSum, total_of
from analytics.deleted import deleted_since
from analytics.queries import query
from analytics.rows import number_of, numbers_of, text_of, texts_of, whole_numbers
from analytics.scope import DAYS_BY_MODEL, MINUTES_KEPT, Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest

MAX_LINES: Final = 200_000  # more than a spreadsheet can handle; filter, or use fewer levels

_MARGIN: Final = timedelta(hours=2)  # retention of rollups: see `analytics.scope`

LineKey = tuple[tuple[str, ...], int]  # (path, start of the period in Unix seconds)


@dataclass(frozen=True, slots=True)
class CostLine:
    """One group in one period. `path` has a name per level of the question; "" means requests without one."""

    path: tuple[str, ...]
    period: Period
    sums: CostSum


@dataclass(frozen=True, slots=True)
class CostReport:
    """The report. `lines`: the finest groups, in order of path and period; groups without requests are omitted.

    `source`: the table that was read; `has_attempts`: whether sums include additional attempts and units.
    """

    question: CostQuestion
    source: Source
    lines: tuple[CostLine, ...]
    has_attempts: bool = False

    @property
    def total(self) -> CostSum:
        """Return the sum of all lines."""
        return total_of(line.sums for line in self.lines)

    def level(self, depth: int) -> tuple[CostLine, ...]:
        """Return the lines grouped by the first `depth` levels; 0 returns the totals by period."""
        found: dict[LineKey, CostLine] = {}
        for line in self.lines:
            path = line.path[:depth]
            name = (path, line.period.start_s)
            known = found.get(name)
            found[name] = CostLine(path, line.period, line.sums if known is None else known.sums + line.sums)
        return tuple(found[name] for name in sorted(found))


def cost_report(
    store: StoreClient,
    question: CostQuestion,
    *,
    with_attempts: bool = False,
    stays_with_sums: bool = False,
) -> CostReport:
    """Return the report from the coarsest table with exact results.

    Booked corrections are included in the lines of the usage that they correct; by users, tags, prompts or adapters,
    which entries do not have, they are on the line without a name. The usage of unpriced requests is included. Rollups
    from before migration 0030 do not always have it; then it is read from single requests, which is slow, or unknown
    with `stays_with_sums`. `with_attempts` also reads additional attempts and units other than tokens from single
    requests; they are omitted if requests of the range have expired or were deleted. Raises InvalidRequest if the range
    is no longer stored or has too many lines, StoreUnavailable.
    """
    source = question.source
    question.check_kept(source)
    if source == "requests":
        check_not_deleted(store, question)
        found = _read(store, question, "cost_requests", only_unpriced=False)
    else:
        found = _read(store, question, "cost_rollup", **_tables(question, source))
        if not stays_with_sums and any(sums.unpriced_tokens is None for sums in found.values()):
            _add_unpriced_tokens(found, _read(store, question, "cost_requests", only_unpriced=True))
    with_attempts = (
        with_attempts
        and question.keeps_requests
        and not deleted_since(store, question.start, question.tenant, question.team)
    )
    if with_attempts:
        _add_attempts(found, store, question)
        _add_units(found, store, question)
    _add_corrections(found, store, question)
    periods = {period.start_s: period for period in question.periods}
    lines = tuple(CostLine(path, periods[start], found[path, start]) for path, start in sorted(found))
    return CostReport(question, source, lines, with_attempts)


def _tables(question: CostQuestion, source: Source) -> dict[str, object]:
    """Return the tables that answer a question with the fewest rows, and the days to read from the coarser rollup,
    which has the same sums."""
    is_by_model = {"tenant", "model"}.issuperset(question.by) and question.team is None and question.project is None
    days = DAYS_BY_MODEL if is_by_model else "requests_day"
    rollup = days if source == "requests_day" else source
    whole = question.whole_days if len(question.periods) == 1 else Period(question.start, question.start)
    if source == "requests_hour" and len(question.periods) == 1 and question.tenant is None:
        # For all tenants the rollup by minute is faster: it is partitioned by day, that by hour only by month.
        since = whole.end if question.start == whole.start < whole.end else question.start
        if question.asked_at - since <= MINUTES_KEPT - _MARGIN:
            rollup = "requests_minute"
    return {"rollup": rollup, "days": days, "first_day": whole.start_s, "end_day": whole.end_s}


def _read(store: StoreClient, question: CostQuestion, name: str, **more: object) -> dict[LineKey, CostSum]:
    columns = store.query_columns(query(name), {**_parameters(question), **more})
    if not columns:
        return {}
    starts = whole_numbers(columns["period_start"])
    if len(starts) > MAX_LINES:
        raise InvalidRequest(
            f"the report has more than {MAX_LINES} lines; take fewer levels, a coarser grain or one tenant", param="by"
        )
    labels = [texts_of(columns[_label(level)]) for level in question.by]
    paths = zip(*labels, strict=True) if labels else repeat((), len(starts))
    return dict(zip(zip(paths, starts, strict=True), CostSum.from_columns(columns), strict=True))


def _parameters(question: CostQuestion) -> dict[str, object]:
    starts = [period.start_s for period in question.periods]
    return {
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


def _key(row: Mapping[str, object], question: CostQuestion) -> LineKey:
    return _path(row, question), number_of(row["period_start"])


def _path(row: Mapping[str, object], question: CostQuestion) -> tuple[str, ...]:
    return tuple(text_of(row[_label(level)]) for level in question.by)


def _label(level: str) -> str:
    return "tag_label" if level.startswith(TAG) else f"{level}_label"


def _add_unpriced_tokens(found: dict[LineKey, CostSum], unpriced: Mapping[LineKey, CostSum]) -> None:
    for name, sums in found.items():
        if sums.unpriced_tokens is not None:
            continue
        asked = unpriced.get(name, CostSum())
        # The rollup has the number of requests; if fewer are stored, their usage is unknown.
        if asked.unpriced_requests == sums.unpriced_requests:
            found[name] = replace(
                sums,
                unpriced_input_tokens=asked.unpriced_input_tokens,
                unpriced_output_tokens=asked.unpriced_output_tokens,
            )


def _add_attempts(found: dict[LineKey, CostSum], store: StoreClient, question: CostQuestion) -> None:
    for row in store.query(query("cost_attempts"), _parameters(question)):
        name, more = _key(row, question), FurtherAttempts.from_row(row)
        # A group that arrived after the sums were read is in the next report.
        if name in found:
            found[name] = replace(
                found[name],
                further_attempts=more.count,
                further_pico_usd=more.pico_usd,
                further_unpriced=more.unpriced,
            )


def _add_units(found: dict[LineKey, CostSum], store: StoreClient, question: CostQuestion) -> None:
    for row in store.query(query("cost_units"), _parameters(question)):
        name = _key(row, question)
        if name in found:  # otherwise it has just arrived
            found[name] = replace(found[name], units=tuple(int(count) for count in numbers_of(row["unit_counts"])))


def _add_corrections(found: dict[LineKey, CostSum], store: StoreClient, question: CostQuestion) -> None:
    """Add booked corrections to the lines in `found` of the usage that they correct."""
    for row in store.query(query("cost_corrections"), _parameters(question)):
        name, correction = _key(row, question), Correction.from_row(row)
        found[name] = correction.applied_to(found.get(name, CostSum()))


def check_not_deleted(store: StoreClient, question: CostQuestion) -> None:
    """Raise InvalidRequest, with the time, if a retention rule has deleted requests of the range."""
    deleted = deleted_since(store, question.start, question.tenant, question.team)
    if deleted is not None:
        until, tenant = deleted
        raise InvalidRequest(
            f"single requests before {until:%Y-%m-%d %H:%M} UTC have been deleted by a retention rule of {tenant!r}; "
            "begin later, or ask by tenant, team, project and model alone for whole days in UTC",
            param="start",
        )
