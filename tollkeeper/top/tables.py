"""Formats the tables of `tollkeeper top`, for the live view and for `--once`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeVar

from tollkeeper.top.picture import EngineLine, GpuLine, ModelLine, Picture, Traffic
from tollkeeper.top.spend import TenantSpend

UNKNOWN: Final = "—"
_GIB: Final = float(1 << 30)
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of text. The first `labels` columns are text; the others are numbers, right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str
    labels: int = 1


def tiles(traffic: Traffic) -> tuple[tuple[str, str], ...]:
    """Return the key figures as (label, value)."""
    return (
        ("requests/s", rate(traffic.requests_per_s)),
        ("failed/s", rate(traffic.failed_per_s)),
        ("refused/s", rate(traffic.refused_per_s)),
        ("tokens/s in", rate(traffic.input_tokens_per_s)),
        ("tokens/s out", rate(traffic.output_tokens_per_s)),
        ("TTFT p50", duration(traffic.ttft_p50_s)),
        ("TTFT p95", duration(traffic.ttft_p95_s)),
        ("answer p95", duration(traffic.duration_p95_s)),
        ("in flight", count(traffic.in_flight)),
        ("waiting", count(traffic.waiting)),
        ("USD/h", money(Decimal(str(traffic.usd_per_hour)))),
    )


def tables(found: Picture, spend: Sequence[TenantSpend] | None, spend_missing: str = "") -> tuple[TextTable, ...]:
    """Return all tables. `spend` is `None` if the store has not answered; `spend_missing` is the reason."""
    return (
        _table("Models", _MODEL, found.models, "no requests since the gateway's start"),
        _table("Spend by tenant (UTC)", _TENANT, spend or (), spend_missing or "no spending this month"),
        _table("Engines", _ENGINE, found.engines, "no engine hosts", labels=2),
        _table("GPUs", _GPU, found.gpus, "no GPUs reported", labels=2),
        TextTable(
            "Waiting",
            ("pool", "class", "requests"),
            tuple((line.pool, line.priority, count(line.waiting)) for line in found.queues),
            "no queue",
            labels=2,
        ),
        TextTable(
            "Circuit open",
            ("pool", "target"),
            tuple((line.pool, line.target) for line in found.left_alone),
            "no open circuits",
            labels=2,
        ),
    )


def rate(value: float) -> str:
    """Format a rate: no decimals from 100 on, one from 1 on, two below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Format a duration in seconds, as seconds or milliseconds."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"


def count(value: float | None) -> str:
    """Format a whole number; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def money(value: Decimal | None) -> str:
    """Format USD: two decimals from one dollar up, below it as many as needed; a dash if unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.6f}"


def ratio(value: float | None) -> str:
    """Format a ratio (0 to 1) as a percentage; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


_MODEL: Final[tuple[tuple[str, Callable[[ModelLine], str]], ...]] = (
    ("model", lambda line: line.model or "(none)"),
    ("requests/s", lambda line: rate(line.requests_per_s)),
    ("failed/s", lambda line: rate(line.failed_per_s)),
    ("tokens/s in", lambda line: rate(line.input_tokens_per_s)),
    ("tokens/s out", lambda line: rate(line.output_tokens_per_s)),
    ("TTFT p50", lambda line: duration(line.ttft_p50_s)),
    ("TTFT p95", lambda line: duration(line.ttft_p95_s)),
    ("USD/h", lambda line: money(Decimal(str(line.usd_per_hour)))),
    ("no price/s", lambda line: rate(line.unpriced_per_s)),
)
_TENANT: Final[tuple[tuple[str, Callable[[TenantSpend], str]], ...]] = (
    ("tenant", lambda line: line.tenant or "(none)"),
    ("requests today", lambda line: count(line.requests_today)),
    ("tokens today", lambda line: count(line.tokens_today)),
    ("USD today", lambda line: money(line.usd_today)),
    ("USD this month", lambda line: money(line.usd_month)),
    ("no price", lambda line: count(line.unpriced_month)),
    ("usage unknown", lambda line: count(line.unknown_usage_month)),
    ("failed", lambda line: count(line.failed_month)),
)
_ENGINE: Final[tuple[tuple[str, Callable[[EngineLine], str]], ...]] = (
    ("host", lambda line: line.host),
    ("model", lambda line: line.model),
    ("state", lambda line: UNKNOWN if line.is_awake is None else "awake" if line.is_awake else "asleep"),
    ("running", lambda line: count(line.running)),
    ("waiting", lambda line: count(line.waiting)),
    ("KV held", lambda line: ratio(line.kv_ratio)),
    ("prefix hits", lambda line: ratio(line.prefix_hit_ratio)),
    ("preempted/s", lambda line: UNKNOWN if line.preemptions_per_s is None else rate(line.preemptions_per_s)),
)
_GPU: Final[tuple[tuple[str, Callable[[GpuLine], str]], ...]] = (
    ("host", lambda line: line.host),
    ("GPU", lambda line: line.gpu),
    ("SM", lambda line: ratio(line.sm_ratio)),
    ("DRAM", lambda line: ratio(line.dram_ratio)),
    ("memory GiB", lambda line: f"{_gib(line.memory_used_bytes)} / {_gib(line.memory_total_bytes)}"),
    ("W", lambda line: count(line.power_watts)),
    ("°C", lambda line: count(line.temperature_celsius)),
    ("throttled by", lambda line: ", ".join(line.throttled) or "nothing"),
)


def _gib(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / _GIB:.1f}"


def _table(
    title: str, cells: Sequence[tuple[str, Callable[[Line], str]]], lines: Iterable[Line], empty: str, labels: int = 1
) -> TextTable:
    rows = tuple(tuple(cell(line) for _, cell in cells) for line in lines)
    return TextTable(title, tuple(name for name, _ in cells), rows, empty, labels)
