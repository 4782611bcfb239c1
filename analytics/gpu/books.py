"""Input of GPU costs for any range: engine steps while they are stored (72 hours), else finished hours."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from algorithms.gpu_time.ledger import LedgerLines
from analytics.gpu.cost import UseByMinute, device_models, tenant_use
from analytics.gpu.finished_hours import LINES, SETTLES_AFTER, hours_looked_at
from analytics.gpu.ledger import STEPS_KEPT, GpuLedger, GpuMinute, gpu_ledger, machines_before
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest

_HOUR: Final = timedelta(hours=1)
_HOUR_SECONDS: Final = 3_600
_NS: Final = 10**9
_ASKING: Final = timedelta(minutes=1)  # tolerance for "the last 72 hours" that were asked for a moment ago


@dataclass(frozen=True, slots=True)
class GpuBooks:
    """Input of `gpu_cost`: a ledger, tenants' use of each engine, and the GPUs' models by UUID."""

    ledger: GpuLedger
    use: UseByMinute
    models: dict[str, str]


def gpu_books(store: StoreClient, period: Period, *, asked_at: datetime | None = None) -> GpuBooks:
    """Read a range: per minute if it is within the last 72 hours, else per finished hour.

    An hour in which none of a GPU's engines reported anything is `no_engine`, as per minute. An hour that was not
    finished while its steps were stored has unknown GPU time: only the number of such hours is returned. Raises
    InvalidRequest if an earlier range's bounds are not whole hours or its end is not yet finished; StoreUnavailable.
    """
    now = asked_at or datetime.now(UTC)
    if now - period.start <= STEPS_KEPT + _ASKING:
        ledger = gpu_ledger(store, period, asked_at=now)
        return GpuBooks(ledger, tenant_use(store, period), device_models(store, period))
    _check_hours(period, now)
    return _finished(store, period)


def unknown_hours_note(count: int) -> str:
    """Return a note on the number of a range's hours whose GPU use is unknown."""
    return (
        f"{count} hours of the range were not finished while their steps were stored (72 hours): their GPU use is "
        "unknown and not billed"
    )


def _check_hours(period: Period, now: datetime) -> None:
    if period.start_s % _HOUR_SECONDS or period.end_s % _HOUR_SECONDS:
        raise InvalidRequest(
            "engine steps are kept for 72 hours; an earlier range must start and end on a whole hour (UTC)",
            param="from",
        )
    finished = (now - SETTLES_AFTER).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if period.end > finished:
        raise InvalidRequest(
            f"hours are finished an hour after their end, so far up to {finished:%Y-%m-%d %H:%M} UTC; choose an "
            "earlier end, or a range within the last 72 hours",
            param="to",
        )


def _finished(store: StoreClient, period: Period) -> GpuBooks:
    parameters = {"start": period.start_s, "end": period.end_s}
    hours, models = [], {}
    for row in store.query(query("gpu_hours"), parameters):
        start = datetime.fromtimestamp(number_of(row["hour_start"]), UTC)
        device, device_model = text_of(row["device_label"]), text_of(row["device_model_label"])
        if device_model:
            models[device] = device_model
        lines = {name: number_of(row[name.removesuffix("_ns") + "_sum"]) for name in LINES}
        hours.append(
            GpuMinute(
                device,
                text_of(row["engine_label"]),
                text_of(row["model_label"]),
                text_of(row["replica_label"]),
                Period(start, start + _HOUR),
                LedgerLines(**lines),
                number_of(row["no_engine_sum"]),
                bool(row["on_gpu"]),
                number_of(row["first_moment_ns"]),
            )
        )
    use: defaultdict[tuple[str, str], dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in store.query(query("gpu_tenant_hours"), parameters):
        name = text_of(row["engine_label"]), text_of(row["tenant_label"])
        use[name][number_of(row["hour_start"])] = number_of(row["useful_sum"]), number_of(row["wasted_sum"])
    looked_at = hours_looked_at(store, period)
    ordered = sorted(
        (*hours, *_absences(hours, looked_at)), key=lambda hour: (hour.device, hour.engine, hour.period.start)
    )
    unknown = (period.end_s - period.start_s) // _HOUR_SECONDS - len(looked_at)
    before = machines_before(store, period)
    ledger = GpuLedger(period, tuple(ordered), grain_s=_HOUR_SECONDS, unknown_hours=unknown, known_before=before)
    return GpuBooks(ledger, dict(use), models)


def _absences(hours: Iterable[GpuMinute], looked_at: frozenset[int]) -> Iterator[GpuMinute]:
    """Yield each GPU's hours without an engine: before the first, between, and after the last."""
    engines: dict[tuple[str, str], GpuMinute] = {}
    told: defaultdict[str, set[int]] = defaultdict(set)
    for hour in hours:
        engines.setdefault((hour.device, hour.engine), hour)
        told[hour.device].add(hour.period.start_s)
    for (device, _), first in engines.items():
        for start_s in looked_at - told[device]:
            start = datetime.fromtimestamp(start_s, UTC)
            absent = Period(start, start + _HOUR)
            yield replace(first, period=absent, lines=LedgerLines(), no_engine_ns=_HOUR_SECONDS * _NS, first_ns=0)
