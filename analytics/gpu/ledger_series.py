"""The GPU ledger over time: its lines by engine in a chart's time steps, summed by the store.

The figures are the same as by `analytics.gpu.ledger`, which reads every engine step and is too slow for a chart that
is refreshed every few seconds. Ranges that begin before the 72 hours for which steps are stored use finished hours.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from algorithms.gpu_time.ledger import LedgerLines, ledger_intervals
from analytics.gpu.books import gpu_books
from analytics.gpu.finished_hours import SETTLES_AFTER
from analytics.gpu.ledger import STEPS_KEPT, GpuMinute, holes_and_repeats, named_devices, time_of_row
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period, Scope
from backends.store.client import StoreClient

_REACH: Final = timedelta(minutes=10)  # the longest interval that may begin before the range: loading a large model
# Tolerance for "the last 72 hours" that were asked for a moment ago, rounded to whole steps
_MARGIN: Final = timedelta(minutes=10)
_NS: Final = 10**9
_LINES: Final = tuple(each.name for each in fields(LedgerLines) if each.name != "wall_ns")


@dataclass(frozen=True, slots=True)
class EngineLines:
    """One engine's lines, one entry per step of the series. `devices` are its GPUs, or its name without GPUs."""

    engine: str
    model: str
    replica: str
    devices: tuple[str, ...]
    lines: tuple[LedgerLines, ...]

    @property
    def total(self) -> LedgerLines:
        """Return the sum over all steps, as wall time of one GPU."""
        return sum(self.lines, LedgerLines())


@dataclass(frozen=True, slots=True)
class LedgerSeries:
    """All engines' lines. `steps` are the starts (UTC), `until` the end of the figures; `missing_steps` are gaps in
    step numbers, `repeated_steps` duplicate records.

    From finished hours, an engine has one entry for each of its devices.
    """

    step: timedelta
    steps: tuple[datetime, ...]
    engines: tuple[EngineLines, ...]
    until: datetime
    missing_steps: int = 0
    repeated_steps: int = 0

    def over_time(self, device: str | None = None) -> tuple[LedgerLines, ...]:
        """Return the GPU time of all engines, or of those on one device, by step of time.

        An engine counts once for each of its GPUs.
        """
        sums = [LedgerLines() for _ in self.steps]
        for one in self.engines:
            weight = len(one.devices) if device is None else one.devices.count(device)
            for place, lines in enumerate(one.lines):
                for _ in range(weight):
                    sums[place] += lines
        return tuple(sums)

    def by_device(self) -> dict[str, LedgerLines]:
        """Return each device's lines over the whole range."""
        found: defaultdict[str, LedgerLines] = defaultdict(LedgerLines)
        for one in self.engines:
            for device in one.devices:
                found[device] += one.total
        return dict(sorted(found.items()))


def ledger_series(store: StoreClient, scope: Scope) -> LedgerSeries:
    """Return the ledger over a scope's range, of all tenants: for callers who may see the whole installation.

    Raises InvalidRequest if a range that begins more than 72 hours ago has no finished hour; StoreUnavailable.
    """
    if scope.asked_at - scope.start > STEPS_KEPT + _MARGIN:
        return _of_hours(store, scope)
    step_ns = scope.step_seconds * _NS
    start_ns, end_ns = _ns(scope.start), _ns(scope.end)
    origin_ns = (start_ns - scope.step_origin * _NS) // step_ns * step_ns + scope.step_origin * _NS
    bounds: dict[str, object] = {
        "start": (scope.start - _REACH).timestamp(),
        "end": (scope.end + _REACH).timestamp(),
        "start_ns": start_ns,
        "end_ns": end_ns,
    }
    places = range(origin_ns, end_ns, step_ns)
    cut = {**bounds, "origin_ns": origin_ns, "step_ns": step_ns}
    found: defaultdict[str, list[LedgerLines]] = defaultdict(lambda: [LedgerLines() for _ in places])
    for row in store.query(query("gpu_lines"), cut):
        amounts = {name: number_of(row[name.removesuffix("_ns") + "_sum"]) for name in _LINES}
        found[text_of(row["engine"])][number_of(row["place"])] += LedgerLines(**amounts)
    ends = [max(start_ns, origin_ns), *places[1:], end_ns]
    across = [time_of_row(row) for row in store.query(query("gpu_crossing"), cut)]
    for engine, intervals in ledger_intervals(across, ends).items():
        found[engine] = [one + other for one, other in zip(found[engine], _without_wall(intervals), strict=True)]
    engines, missing, repeated = [], 0, 0
    for row in store.query(query("gpu_engines"), bounds):
        engine = text_of(row["engine"])
        alive = (max(number_of(row["first_ns"]), start_ns), min(number_of(row["last_ns"]), end_ns))
        holes, again = holes_and_repeats(number_of(row["expected_count"]), number_of(row["step_count"]))
        missing, repeated = missing + holes, repeated + again
        parts = found[engine]
        engines.append(
            EngineLines(
                engine,
                text_of(row["model_label"]),
                text_of(row["replica_label"]),
                named_devices(engine, cast(Sequence[str], row["device_labels"])) or (engine,),
                tuple(
                    LedgerLines(wall_ns=_common((place, place + step_ns), alive)) + lines
                    for place, lines in zip(places, parts, strict=True)
                ),
            )
        )
    starts = tuple(datetime.fromtimestamp(place // _NS, UTC) for place in places)
    return LedgerSeries(timedelta(seconds=scope.step_seconds), starts, tuple(engines), scope.end, missing, repeated)


def _of_hours(store: StoreClient, scope: Scope) -> LedgerSeries:
    """Return the series of finished hours, the last of which ended at least an hour ago."""
    begin = scope.start.replace(minute=0, second=0, microsecond=0)
    finished = (scope.asked_at - SETTLES_AFTER).replace(minute=0, second=0, microsecond=0)
    until = min(scope.end.replace(minute=0, second=0, microsecond=0), finished)
    hours = gpu_books(store, Period(begin, until), asked_at=scope.asked_at).ledger.minutes if begin < until else ()
    starts = scope.step_starts
    by_engine: defaultdict[tuple[str, str, str, str], list[GpuMinute]] = defaultdict(list)
    for hour in hours:
        by_engine[hour.engine, hour.device, hour.model, hour.replica].append(hour)
    engines = []
    for (engine, device, model, replica), of_engine in sorted(by_engine.items()):
        lines = [LedgerLines() for _ in starts]
        for hour in of_engine:
            lines[(hour.period.start_s - starts.start) // starts.step] += hour.lines
        engines.append(EngineLines(engine, model, replica, (device,), tuple(lines)))
    moments = tuple(datetime.fromtimestamp(start, UTC) for start in starts)
    return LedgerSeries(timedelta(seconds=starts.step), moments, tuple(engines), until)


def _without_wall(lines: Sequence[LedgerLines]) -> list[LedgerLines]:
    """Return lines without wall time, which is an engine's life and cannot be computed from these records."""
    return [replace(each, wall_ns=0) for each in lines]


def _common(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(min(one[1], other[1]) - max(one[0], other[0]), 0)


def _ns(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
