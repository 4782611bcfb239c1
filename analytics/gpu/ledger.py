"""The GPU ledger by GPU and minute: every nanosecond of an engine's life is on one line, unexplained time on its own.

It reads engine steps, which the store keeps for 72 hours. An engine's life extends from its first to its last record in
the range; a GPU's time outside it is `no_engine`, which is paid for too.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from algorithms.gpu_time.ledger import LedgerLines, StepTime, ledger_intervals
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.recording.moments import unix_ns, utc_moment
from contracts.recording.records import GapCause, StepKind

STEPS_KEPT: Final = timedelta(hours=72)
MAX_STEPS: Final = 3_000_000  # some 1.5 GB: eight hours of a hundred steps a second
_REACH: Final = timedelta(minutes=10)  # the longest interval that may begin before the range: loading a large model
_ASKING: Final = timedelta(minutes=1)  # tolerance for "the last 72 hours" that were asked for a moment ago
_NS: Final = 10**9
CPU: Final = "cpu"  # device name of an engine without a GPU
_MINUTE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class GpuMinute:
    """One engine's minute on one GPU. `lines.wall_ns` is the engine's lifetime in it, `no_engine_ns` the rest.

    `device` is the GPU's UUID, or the engine's name if it reported none.
    """

    device: str
    engine: str
    model: str
    replica: str
    period: Period
    lines: LedgerLines
    no_engine_ns: int = 0
    is_gpu: bool = True  # False: the engine computes on a CPU
    first_ns: int = 0  # in an hour: the engine's first record (Unix ns); 0: the hour's beginning

    @property
    def machine(self) -> str:
        """Return the machine that is priced once for all its engines: the GPU, or without one the engine host."""
        return self.device if self.is_gpu else self.replica or self.device


@dataclass(frozen=True, slots=True)
class GpuLedger:
    """Minutes by GPU, engine and time. `steps` were read; `missing_steps` are gaps in step numbers, `repeated_steps`
    duplicate records, each of which counts its time again.

    With finished hours a "minute" is `grain_s` seconds long, an hour. `unknown_hours` were not finished while their
    steps were stored, and are not in the ledger. `known_before` are the devices and engine hosts that had an engine
    before the range.
    """

    period: Period
    minutes: tuple[GpuMinute, ...]
    steps: int = 0
    missing_steps: int = 0
    repeated_steps: int = 0
    grain_s: int = 60
    unknown_hours: int = 0
    known_before: frozenset[str] = frozenset()

    @property
    def total(self) -> LedgerLines:
        """Return the sum over all GPUs."""
        return sum((minute.lines for minute in self.minutes), LedgerLines())

    def first_records(self) -> dict[str, int]:
        """Return the start (Unix ns) of each machine's first engine in the range, for machines not seen before it."""
        found: dict[str, int] = {}
        for minute in self.minutes:
            if minute.machine in self.known_before or not minute.lines.wall_ns:
                continue
            since = minute.first_ns or unix_ns(minute.period.start)
            found[minute.machine] = min(found.get(minute.machine, since), since)
        return found

    def by_device(self) -> dict[str, LedgerLines]:
        """Return each GPU's lines over the whole range."""
        found: defaultdict[str, LedgerLines] = defaultdict(LedgerLines)
        for minute in self.minutes:
            found[minute.device] += minute.lines
        return dict(sorted(found.items()))


@dataclass(slots=True)
class _Engine:
    """An engine's attributes, and its first and last record."""

    model: str
    replica: str
    devices: tuple[str, ...]
    first_ns: int
    last_ns: int
    first_sequence: int
    last_sequence: int
    is_gpu: bool
    times: list[StepTime] = field(default_factory=list)


def gpu_ledger(store: StoreClient, period: Period, *, asked_at: datetime | None = None, engine: str = "") -> GpuLedger:
    """Read a range's steps and compute its ledger by GPU and minute. For callers who may see the whole installation.

    `engine` restricts it to one engine. Raises InvalidRequest if the steps are no longer stored or too many to read at
    once, StoreUnavailable.
    """
    now = asked_at or datetime.now(UTC)
    if period.end <= period.start:
        raise InvalidRequest("the range ends before it starts; choose a later end", param="to")
    if now - period.start > STEPS_KEPT + _ASKING:
        raise InvalidRequest(
            f"engine steps are kept for 72 hours, since {now - STEPS_KEPT:%Y-%m-%d %H:%M} UTC; start later",
            param="from",
        )
    if period.end - period.start > STEPS_KEPT + _ASKING:
        raise InvalidRequest("the range is longer than the 72 hours that engine steps are kept", param="to")
    engines = _engines(store, period, engine)
    ledger = ledger_of(period, {name: (engine.devices, engine.times) for name, engine in engines.items()}, engines)
    return replace(ledger, known_before=machines_before(store, period))


def machines_before(store: StoreClient, period: Period) -> frozenset[str]:
    """Return the devices and engine hosts that had an engine in a finished hour before a range."""
    rows = store.query(query("gpu_machines_before"), {"start": period.start_s})
    return frozenset(text_of(row["name"]) for row in rows)


def ledger_of(
    period: Period,
    known: dict[str, tuple[tuple[str, ...], list[StepTime]]],
    facts: dict[str, _Engine] | None = None,
) -> GpuLedger:
    """Compute a ledger by GPU and minute. `known` has each engine's devices and step times."""
    start_ns, end_ns = unix_ns(period.start), unix_ns(period.end)
    minutes: list[GpuMinute] = []
    steps = missing = repeated = 0
    for engine, (devices, times) in sorted(known.items()):
        fact = (facts or {}).get(engine)
        born = max(start_ns, min(time.begins_at_ns for time in times))
        died = min(end_ns, max(time.ends_at_ns for time in times))
        if died <= born:
            continue
        steps += len(times)
        if fact is not None:
            holes, again = holes_and_repeats(fact.last_sequence - fact.first_sequence + 1, len(times))
            missing, repeated = missing + holes, repeated + again
        bounds = _bounds(start_ns, end_ns, born, died)
        for place, lines in enumerate(ledger_intervals(times, bounds)[engine]):
            stretch = (bounds[place], bounds[place + 1])
            alive = born <= stretch[0] and stretch[1] <= died
            minutes += [
                GpuMinute(
                    device,
                    engine,
                    fact.model if fact else "",
                    fact.replica if fact else "",
                    Period(utc_moment(stretch[0]), utc_moment(stretch[1])),
                    lines if alive else LedgerLines(),
                    0 if alive else stretch[1] - stretch[0],
                    fact is None or fact.is_gpu,
                )
                for device in devices or (engine,)
            ]
    ordered = sorted(minutes, key=lambda minute: (minute.device, minute.engine, minute.period.start))
    return GpuLedger(period, tuple(ordered), steps, missing, repeated)


def holes_and_repeats(expected: int, found: int) -> tuple[int, int]:
    """Return the number of missing records of an engine and that of repeated ones, of which one is 0."""
    return max(expected - found, 0), max(found - expected, 0)


def _engines(store: StoreClient, period: Period, only: str) -> dict[str, _Engine]:
    parameters = {
        "engine": only,
        "start": (period.start - _REACH).timestamp(),
        "end": (period.end + _REACH).timestamp(),
        "line_limit": MAX_STEPS + 1,
    }
    rows = store.query(query("gpu_steps"), parameters)
    if len(rows) > MAX_STEPS:
        raise InvalidRequest(f"the range has more than {MAX_STEPS} engine steps; take a shorter one", param="from")
    engines: dict[str, _Engine] = {}
    start_ns, end_ns = unix_ns(period.start), unix_ns(period.end)
    for row in rows:
        time, sequence = time_of_row(row), number_of(row["sequence"])
        if time.ends_at_ns <= start_ns or time.begins_at_ns >= end_ns:
            continue
        engine = engines.get(time.engine)
        if engine is None:
            devices = cast(Sequence[str], row["device_labels"])
            engine = engines[time.engine] = _Engine(
                model=text_of(row["model"]),
                replica=text_of(row["replica"]),
                devices=named_devices(time.engine, devices),
                first_ns=time.begins_at_ns,
                last_ns=0,
                first_sequence=sequence,
                last_sequence=sequence,
                is_gpu=CPU not in devices,
            )
        engine.last_ns, engine.last_sequence = time.ends_at_ns, max(engine.last_sequence, sequence)
        engine.first_sequence = min(engine.first_sequence, sequence)
        engine.times.append(time)
    return engines


def named_devices(engine: str, devices: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an engine's devices: GPUs' UUIDs, or the engine's name without a GPU."""
    return tuple(device if device and device != CPU else engine for device in devices)


def time_of_row(row: dict[str, object]) -> StepTime:
    """Convert a row of gpu_steps.sql to a step's times."""
    charged, wasted, again = (number_of(row[name]) for name in ("charged_sum", "wasted_sum", "recompute_sum"))
    return StepTime(
        engine=text_of(row["engine"]),
        kind=cast(StepKind, text_of(row["kind_label"])),
        gap_cause=cast(GapCause, text_of(row["cause_label"])),
        started_at_ns=number_of(row["started_at_ns"]),
        busy_ns=number_of(row["busy_ns"]),
        gap_ns=number_of(row["gap_ns"]),
        attributed_ns=charged - wasted - again,
        recompute_ns=again,
        wasted_ns=wasted,
    )


def _bounds(start_ns: int, end_ns: int, born: int, died: int) -> list[int]:
    """Return the bounds (Unix ns) of the range's minutes and of the engine's life, ascending."""
    step = _MINUTE_SECONDS * _NS
    first = start_ns // step * step + step
    return sorted({start_ns, *range(first, end_ns, step), end_ns, born, died})


def lines_as_json(lines: LedgerLines) -> dict[str, object]:
    """Return a ledger's lines by name, with unexplained time in ns and as a share of wall time."""
    names = (
        *("wall_ns", "attributed_ns", "recompute_ns", "wasted_ns", "unattributed_ns", "host_gap_ns", "idle_ns"),
        *("load_ns", "warmup_ns", "sleep_ns", "dead_ns", "unexplained_ns"),
    )
    share = lines.unexplained_ns / lines.wall_ns if lines.wall_ns else None
    return {**{name: getattr(lines, name) for name in names}, "unexplained_share": share}


def ledger_as_json(ledger: GpuLedger, *, minutes: bool) -> dict[str, object]:
    """Return the ledger's totals, each GPU's totals and, with `minutes`, each minute's lines as JSON values."""
    by_minute: Iterable[GpuMinute] = ledger.minutes if minutes else ()
    return {
        "from": ledger.period.start.isoformat(),
        "to": ledger.period.end.isoformat(),
        "steps": ledger.steps,
        "missing_steps": ledger.missing_steps,
        "repeated_steps": ledger.repeated_steps,
        "total": {**lines_as_json(ledger.total), "no_engine_ns": sum(one.no_engine_ns for one in ledger.minutes)},
        "gpus": [{"device": device, **lines_as_json(lines)} for device, lines in ledger.by_device().items()],
        "minutes": [
            {
                "device": one.device,
                "engine": one.engine,
                "model": one.model,
                "replica": one.replica,
                "from": one.period.start.isoformat(),
                "to": one.period.end.isoformat(),
                **lines_as_json(one.lines),
                "no_engine_ns": one.no_engine_ns,
            }
            for one in by_minute
        ],
    }
