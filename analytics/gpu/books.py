"""What GPU costs are computed from, for any range: single steps while these are kept, else the finished hours."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.gpu.cost import UseByMinute, device_models, tenant_use
from analytics.gpu.finished_hours import LINES, SETTLES_AFTER
from analytics.gpu.ledger import STEPS_KEPT, GpuLedger, GpuMinute, gpu_ledger
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.ledger import LedgerLines

_HOUR: Final = timedelta(hours=1)
_ASKING: Final = timedelta(minutes=1)  # "the last 72 hours" were so a moment ago


@dataclass(frozen=True, slots=True)
class GpuBooks:
    """A ledger, whom each engine worked for, and the GPUs' models by UUID: what `gpu_cost` takes."""

    ledger: GpuLedger
    use: UseByMinute
    models: dict[str, str]


def gpu_books(store: StoreClient, period: Period, *, asked_at: datetime | None = None) -> GpuBooks:
    """Read a range: by the minute where it lies within the last 72 hours, else by finished hours.

    Raises InvalidRequest where it begins before that and its bounds are no whole hours, or its end is not finished yet;
    StoreUnavailable.
    """
    now = asked_at or datetime.now(UTC)
    if now - period.start <= STEPS_KEPT + _ASKING:
        ledger = gpu_ledger(store, period, asked_at=now)
        return GpuBooks(ledger, tenant_use(store, period), device_models(store, period))
    _check_hours(period, now)
    return _finished(store, period)


def _check_hours(period: Period, now: datetime) -> None:
    if period.start_s % 3600 or period.end_s % 3600:
        raise InvalidRequest(
            "engine steps are kept for 72 hours; a range that begins earlier is answered from whole hours (UTC), so "
            "let it begin and end on one",
            param="from",
        )
    finished = (now - SETTLES_AFTER).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if period.end > finished:
        raise InvalidRequest(
            f"hours are finished an hour after their end, those up to {finished:%Y-%m-%d %H:%M} UTC by now; choose an "
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
            )
        )
    use: defaultdict[tuple[str, str], dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in store.query(query("gpu_tenant_hours"), parameters):
        name = text_of(row["engine_label"]), text_of(row["tenant_label"])
        use[name][number_of(row["hour_start"])] = number_of(row["useful_sum"]), number_of(row["wasted_sum"])
    return GpuBooks(GpuLedger(period, tuple(hours), grain_s=3600), dict(use), models)
