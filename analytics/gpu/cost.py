"""Cost of GPU time: ledger lines at the rates valid at that time, and their payers. All parts sum to the total."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from algorithms.gpu_time.attribution import split_exactly
from analytics.gpu.idle import PLATFORM, IdlePolicy, split_idle
from analytics.gpu.ledger import CPU, GpuLedger, GpuMinute
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.pricing.money import usd
from contracts.pricing.rates import RateBook

# The ledger's lines by kind of payment: used by requests, wasted, and idle.
USED: Final = "attributed_ns"
WASTED: Final = "wasted_ns"
BUSY_LINES: Final = (USED, "recompute_ns", WASTED, "unattributed_ns")
IDLE_LINES: Final = (
    *("host_gap_ns", "idle_ns", "load_ns", "warmup_ns", "sleep_ns", "dead_ns", "unexplained_ns", "no_engine_ns"),
)
_HOUR_NS: Final = 3_600 * 10**9
_MINUTE_SECONDS: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UseByMinute = Mapping[tuple[str, str], Mapping[int, tuple[int, int]]]  # engine, tenant -> minute -> useful, wasted ns


@dataclass(frozen=True, slots=True)
class TenantGpuCost:
    """A tenant's cost (pico-USD): its requests' GPU time, time wasted after its clients had left, and idle time."""

    tenant: str
    used_ns: int
    used_pico_usd: int
    wasted_pico_usd: int
    idle_pico_usd: int

    @property
    def total_pico_usd(self) -> int:
        """Return the sum of the three, in pico-USD."""
        return self.used_pico_usd + self.wasted_pico_usd + self.idle_pico_usd


@dataclass(frozen=True, slots=True)
class GpuCost:
    """GPU cost of a range: by line, by model and by payer. `unrated_ns` is GPU time without a rate, `unrated_cpu_ns`
    that of engines without a GPU; `unknown_hours` were never finished, and are not in the cost.

    `platform_pico_usd` is what no tenant pays: recomputation after preemptions, steps without a charged tenant, and
    idle time that the policy leaves to the operator. Tenants and operator sum to the total, and so do the lines.
    """

    period: Period
    policy: IdlePolicy
    total_pico_usd: int
    lines_pico_usd: Mapping[str, int]
    models_pico_usd: Mapping[str, Mapping[str, int]]
    tenants: tuple[TenantGpuCost, ...]
    platform_pico_usd: int
    unrated_ns: int
    rate_versions: tuple[str, ...]
    unrated_cpu_ns: int = 0
    unknown_hours: int = 0

    @property
    def platform_idle_pico_usd(self) -> int:
        """Return the idle time's cost that no tenant pays."""
        idle = sum(self.lines_pico_usd.get(line, 0) for line in IDLE_LINES)
        return idle - sum(tenant.idle_pico_usd for tenant in self.tenants)


def device_models(store: StoreClient, period: Period) -> dict[str, str]:
    """Return the model of every GPU that was sampled in a range, by UUID."""
    parameters = {"start": period.start.timestamp(), "end": period.end.timestamp()}
    rows = store.query(query("gpu_devices"), parameters)
    return {text_of(row["device_label"]): text_of(row["model_label"]) for row in rows}


def tenant_use(
    store: StoreClient, period: Period, engine: str = ""
) -> dict[tuple[str, str], dict[int, tuple[int, int]]]:
    """Return each tenant's useful and wasted nanoseconds by (engine, tenant) and minute (Unix seconds)."""
    parameters = {"start": period.start.timestamp(), "end": period.end.timestamp(), "engine": engine}
    found: defaultdict[tuple[str, str], dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in store.query(query("gpu_tenant_use"), parameters):
        charged, wasted, again = (number_of(row[name]) for name in ("charged_sum", "wasted_sum", "recompute_sum"))
        useful = charged - wasted - again
        found[text_of(row["engine"]), text_of(row["tenant_label"])][number_of(row["minute_start"])] = (useful, wasted)
    return dict(found)


def gpu_cost(
    ledger: GpuLedger,
    use: UseByMinute,
    rates: RateBook,
    models: Mapping[str, str],
    policy: IdlePolicy,
    reserved: Mapping[str, float] | None = None,
) -> GpuCost:
    """Return the cost of a ledger. `models`: each GPU's model by UUID; `reserved`: each tenant's share of the GPUs.

    A machine that several engines share (a GPU, or an engine host without one) is priced once, from its first engine
    on: busy time is charged as measured, and the rest of the wall-clock time is split over the engines' other lines. An
    engine without a GPU has the rate of its name, its host or `cpu`, not the rate for all GPUs. Each interval (a
    minute, or a finished hour) has the rate at its beginning.
    """
    by_line: defaultdict[str, int] = defaultdict(int)
    by_model: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    used: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])  # ns, pico-USD for use, pico-USD for waste
    versions: set[str] = set()
    unrated = {True: 0, False: 0}  # on GPUs, and on CPUs
    first_records = ledger.first_records()
    for (machine, begin, end), found in _stretches(ledger).items():
        start = max(begin, first_records.get(machine, begin))
        minutes = [_from(minute, start) for minute in found if _unix_ns(minute.period.end) > start]
        if start >= end or not minutes:
            continue  # before the first engine
        is_gpu = any(minute.is_gpu for minute in minutes)
        engines = () if is_gpu else tuple(sorted({minute.device for minute in minutes}))
        subjects = (*engines, machine, models.get(machine, "") if is_gpu else CPU)
        rate = rates.gpu(_EPOCH + timedelta(microseconds=start // 1000), *subjects, or_any=is_gpu)
        if rate is None:
            unrated[is_gpu] += end - start
            continue
        versions.add(rate.version)
        amount = rate.pico_usd_per_hour * end // _HOUR_NS - rate.pico_usd_per_hour * start // _HOUR_NS
        names = [(minute, line) for minute in minutes for line in (*BUSY_LINES, *IDLE_LINES)]
        parts = split_exactly(amount, _weights(minutes, end - start))
        for (minute, line), part in zip(names, parts, strict=True):
            by_line[line] += part
            by_model[minute.model][line] += part
            if line in (USED, WASTED):
                _charge(used, use, minute, line, part, ledger.grain_s)
    idle = sum(by_line[line] for line in IDLE_LINES)
    shares = split_idle(idle, policy, _use_by_minute(use), reserved or {})
    tenants = tuple(
        TenantGpuCost(tenant, used[tenant][0], used[tenant][1], used[tenant][2], shares.get(tenant, 0))
        for tenant in sorted({*used, *shares} - {PLATFORM})
    )
    total = sum(by_line.values())
    return GpuCost(
        period=ledger.period,
        policy=policy,
        total_pico_usd=total,
        lines_pico_usd=dict(by_line),
        models_pico_usd={model: dict(lines) for model, lines in by_model.items()},
        tenants=tenants,
        platform_pico_usd=total - sum(tenant.total_pico_usd for tenant in tenants),
        unrated_ns=unrated[True],
        rate_versions=tuple(sorted(versions)),
        unrated_cpu_ns=unrated[False],
        unknown_hours=ledger.unknown_hours,
    )


def _from(minute: GpuMinute, start_ns: int) -> GpuMinute:
    """Return a minute (or hour) without the time before the first engine's start."""
    before = start_ns - _unix_ns(minute.period.start)
    return replace(minute, no_engine_ns=max(minute.no_engine_ns - before, 0)) if before > 0 else minute


def _stretches(ledger: GpuLedger) -> dict[tuple[str, int, int], list[GpuMinute]]:
    """Group the minutes of all engines by machine and minute (Unix ns), or by hour if that is the granularity."""
    found: defaultdict[tuple[str, int, int], list[GpuMinute]] = defaultdict(list)
    start_ns, end_ns, grain_ns = _unix_ns(ledger.period.start), _unix_ns(ledger.period.end), ledger.grain_s * 10**9
    for minute in ledger.minutes:
        first = _unix_ns(minute.period.start) // grain_ns * grain_ns
        found[minute.machine, max(first, start_ns), min(first + grain_ns, end_ns)].append(minute)
    return found


def _weights(minutes: Sequence[GpuMinute], wall_ns: int) -> list[float]:
    busy = [[float(max(getattr(one.lines, line), 0)) for line in BUSY_LINES] for one in minutes]
    # While one engine runs on a machine, another engine's absence has no cost.
    is_left = wall_ns > max(one.lines.wall_ns for one in minutes)
    absent = {id(one): one.no_engine_ns if is_left else 0 for one in minutes}
    rest = [
        [float(max(absent[id(one)] if line == "no_engine_ns" else getattr(one.lines, line), 0)) for line in IDLE_LINES]
        for one in minutes
    ]
    left, all_rest = max(wall_ns - sum(map(sum, busy)), 0.0), sum(map(sum, rest))
    scale = left / all_rest if all_rest else 0.0
    return [
        weight
        for of_busy, of_rest in zip(busy, rest, strict=True)
        for weight in (*of_busy, *(one * scale for one in of_rest))
    ]


def _charge(
    used: dict[str, list[int]], use: UseByMinute, minute: GpuMinute, line: str, part: int, grain_s: int
) -> None:
    """Charge a part of a minute (or hour) to an engine's tenants in it, in proportion to their nanoseconds."""
    if not part:
        return
    second = int(minute.period.start.timestamp()) // grain_s * grain_s
    place = 0 if line == USED else 1
    owed = {
        tenant: by_minute.get(second, (0, 0))[place]
        for (engine, tenant), by_minute in use.items()
        if engine == minute.engine
    }
    is_counted = line == USED
    # A step that began in the previous minute is counted there. Hours are not compared with the previous one.
    if grain_s == _MINUTE_SECONDS and not any(owed.values()):
        is_counted = False
        owed = {
            tenant: by_minute.get(second - grain_s, (0, 0))[place]
            for (engine, tenant), by_minute in use.items()
            if engine == minute.engine
        }
    tenants = sorted(owed)
    parts = split_exactly(part, [float(owed[tenant]) for tenant in tenants])
    for tenant, share in zip(tenants, parts, strict=True):
        used[tenant][1 + place] += share
        used[tenant][0] += owed[tenant] if is_counted else 0


def _use_by_minute(use: UseByMinute) -> dict[str, list[int]]:
    minutes = sorted({minute for by_minute in use.values() for minute in by_minute})
    places = {minute: place for place, minute in enumerate(minutes)}
    found: dict[str, list[int]] = {}
    for (_, tenant), by_minute in use.items():
        row = found.setdefault(tenant, [0] * len(minutes))
        for minute, (useful, _) in by_minute.items():
            row[places[minute]] += useful
    return found


def _unix_ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def gpu_cost_as_json(cost: GpuCost) -> dict[str, object]:
    """Return the cost as JSON values, with money as decimal text."""
    return {
        "from": cost.period.start.isoformat(),
        "to": cost.period.end.isoformat(),
        "idle_policy": cost.policy,
        "rates": list(cost.rate_versions),
        "total_usd": format(usd(cost.total_pico_usd), "f"),
        "lines_usd": {line.removesuffix("_ns"): format(usd(part), "f") for line, part in cost.lines_pico_usd.items()},
        "models_usd": {model: format(usd(sum(lines.values())), "f") for model, lines in cost.models_pico_usd.items()},
        "tenants": [
            {
                "tenant": tenant.tenant,
                "gpu_ns": tenant.used_ns,
                "used_usd": format(usd(tenant.used_pico_usd), "f"),
                "wasted_usd": format(usd(tenant.wasted_pico_usd), "f"),
                "idle_usd": format(usd(tenant.idle_pico_usd), "f"),
                "total_usd": format(usd(tenant.total_pico_usd), "f"),
            }
            for tenant in cost.tenants
        ],
        "platform_usd": format(usd(cost.platform_pico_usd), "f"),
        "platform_idle_usd": format(usd(cost.platform_idle_pico_usd), "f"),
        "unrated_gpu_ns": cost.unrated_ns,
        "unrated_cpu_ns": cost.unrated_cpu_ns,
        "unknown_hours": cost.unknown_hours,
    }
