"""The GPU ledger's hours, stored permanently: written once, when an hour is over and its records have arrived."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from algorithms.gpu_time.ledger import LedgerLines
from analytics.gpu.cost import device_models, tenant_use
from analytics.gpu.ledger import STEPS_KEPT, GpuLedger, gpu_ledger
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.control.database import ControlDatabase
from backends.control.leases import give_back, take_lease
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from contracts.recording.moments import unix_ns

if TYPE_CHECKING:
    import pyarrow

LEASE: Final = "gpu-hours"
LINES: Final = (
    *("wall_ns", "attributed_ns", "recompute_ns", "wasted_ns", "unattributed_ns", "host_gap_ns", "idle_ns"),
    *("load_ns", "warmup_ns", "sleep_ns", "dead_ns"),
)
SETTLES_AFTER: Final = timedelta(hours=1)  # records of an engine host that arrive later are in no finished hour
_HOUR: Final = timedelta(hours=1)
_HOUR_SECONDS: Final = 3_600
_REACHES_BACK: Final = STEPS_KEPT - timedelta(hours=1)
_LEASE_LASTS: Final = timedelta(minutes=15)


class HoursLeftOut(TollkeeperError):
    """Some engines' hours could not be computed or stored and are retried; all others were."""

    code = "hours_left_out"


class FinishedHours:
    """Writes the hours that are over. One thread at a time; one process at a time, by a lease."""

    def __init__(self, database: ControlDatabase, store: StoreClient, holder: str, now: Callable[[], datetime]) -> None:
        self._database = database
        self._store = store
        self._holder = holder
        self._now = now

    def write_due(self) -> int:
        """Write each engine's hours that are over and not yet written; return the number written. Each is stored once,
        also if a call is repeated after a crash.

        Complete hours are marked as finished, also those without a report of any engine. Raises HoursLeftOut once all
        others are written, StoreUnavailable, ControlUnavailable.
        """
        now = self._now()
        with self._database.session() as session:
            lease = take_lease(session, LEASE, self._holder, now, _LEASE_LASTS)
        if lease is None:
            return 0
        try:
            due = _due(self._store, now)
            faults: dict[tuple[datetime, str], TollkeeperError] = {}
            for hour, engine in due:
                try:
                    write_hour(self._store, hour, engine, now)
                except TollkeeperError as error:
                    faults[hour, engine] = error
            _note_looked_at(self._store, now, {int(hour.timestamp()) for hour, _ in faults})
            if faults:
                raise _left_out(faults) from next(iter(faults.values()))
            return len(due)
        finally:
            with self._database.session() as session:
                give_back(session, lease, now)


def _due(store: StoreClient, now: datetime) -> list[tuple[datetime, str]]:
    period = _within_reach(now)
    parameters = {"start": period.start_s, "end": period.end_s}
    return [
        (datetime.fromtimestamp(number_of(row["hour_start"]), UTC), text_of(row["engine_label"]))
        for row in store.query(query("gpu_hours_due"), parameters)
    ]


def _within_reach(now: datetime) -> Period:
    """Return the range of hours that are over and whose steps are still stored."""
    return Period(_whole_hour(now - _REACHES_BACK), _whole_hour(now - SETTLES_AFTER))


def _left_out(faults: dict[tuple[datetime, str], TollkeeperError]) -> HoursLeftOut:
    (hour, engine), error = next(iter(faults.items()))
    return HoursLeftOut(
        f"{len(faults)} hours of engines are not written and are tried again; first: {hour:%Y-%m-%d %H:%M} UTC of "
        f"{engine!r}: {error.message}"
    )


def hours_looked_at(store: StoreClient, period: Period) -> frozenset[int]:
    """Return a range's hours (Unix seconds) that were finished while their steps were stored; an engine without a row
    in one reported nothing in it. Other hours are unknown. Raises StoreUnavailable.
    """
    rows = store.query(query("gpu_hours_looked_at"), {"start": period.start_s, "end": period.end_s})
    return frozenset(number_of(row["hour_start"]) for row in rows)


def _note_looked_at(store: StoreClient, now: datetime, left_out: set[int]) -> None:
    import pyarrow as pa  # as in _lines

    period = _within_reach(now)
    known = hours_looked_at(store, period) | left_out
    fresh = [hour for hour in range(period.start_s, period.end_s, _HOUR_SECONDS) if hour not in known]
    if fresh:
        bucket = pa.array([datetime.fromtimestamp(hour, UTC) for hour in fresh], pa.timestamp("s", "UTC"))
        token = f"gpu hours looked at {' '.join(map(str, fresh))}"
        store.insert_arrow("gpu_hours", pa.table({"bucket": bucket}), deduplication_token=token)


def write_hour(store: StoreClient, hour: datetime, engine: str, now: datetime) -> None:
    """Compute one engine's hour from its steps and store its sums, once. Raises StoreUnavailable."""
    period = Period(hour, hour + _HOUR)
    ledger = gpu_ledger(store, period, asked_at=now, engine=engine)
    if not ledger.minutes:  # its records around the hour do not extend into it
        return
    token = f"gpu hour {engine} {int(hour.timestamp())}"
    use = tenant_use(store, period, engine)
    if use:
        summed = {tenant: _sums(by_minute) for (_, tenant), by_minute in use.items()}
        store.insert_arrow("gpu_tenant_hours", _uses(hour, engine, summed), deduplication_token=token)
    # Stored last, as an hour with these lines is no longer due.
    store.insert_arrow("gpu_hours", _lines(ledger, device_models(store, period)), deduplication_token=token)


def _lines(ledger: GpuLedger, models: dict[str, str]) -> "pyarrow.Table":
    import pyarrow as pa  # imported here, so that readers of the ledger need not wait for it to load

    lines: defaultdict[str, LedgerLines] = defaultdict(LedgerLines)
    absent: defaultdict[str, int] = defaultdict(int)
    for minute in ledger.minutes:
        lines[minute.device] += minute.lines
        absent[minute.device] += minute.no_engine_ns
    fact = ledger.minutes[0]
    first_ns = min((unix_ns(one.period.start) for one in ledger.minutes if one.lines.wall_ns), default=0)
    devices = sorted(lines)
    count = len(devices)
    return pa.table(
        {
            "bucket": pa.array([ledger.period.start] * count, pa.timestamp("s", "UTC")),
            "device": pa.array(devices, pa.string()),
            "engine": pa.array([fact.engine] * count, pa.string()),
            "model": pa.array([fact.model] * count, pa.string()),
            "replica": pa.array([fact.replica] * count, pa.string()),
            "device_model": pa.array([models.get(device, "") for device in devices], pa.string()),
            "is_gpu": pa.array([fact.is_gpu] * count, pa.bool_()),
            **{
                name: pa.array([max(getattr(lines[device], name), 0) for device in devices], pa.uint64())
                for name in LINES
            },
            "no_engine_ns": pa.array([absent[device] for device in devices], pa.uint64()),
            "first_ns": pa.array([first_ns] * count, pa.uint64()),
        }
    )


def _uses(hour: datetime, engine: str, summed: dict[str, tuple[int, int]]) -> "pyarrow.Table":
    import pyarrow as pa  # as above

    tenants = sorted(summed)
    return pa.table(
        {
            "bucket": pa.array([hour] * len(tenants), pa.timestamp("s", "UTC")),
            "tenant": pa.array(tenants, pa.string()),
            "engine": pa.array([engine] * len(tenants), pa.string()),
            "useful_ns": pa.array([summed[tenant][0] for tenant in tenants], pa.uint64()),
            "wasted_ns": pa.array([summed[tenant][1] for tenant in tenants], pa.uint64()),
        }
    )


def _sums(by_minute: dict[int, tuple[int, int]]) -> tuple[int, int]:
    return sum(useful for useful, _ in by_minute.values()), sum(wasted for _, wasted in by_minute.values())


def _whole_hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
