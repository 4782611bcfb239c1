"""The GPU page's engines: batch, queue, KV cache and prefix cache hits over time, and GPU sensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import streamlit as st

from analytics.gpu.load import EngineLoad, Load, LoadPoint
from analytics.gpu.sensors import Device, Sensors, SensorSeries
from dashboard import charts
from dashboard.formats import hundredths
from dashboard.panels import Figure, note, panel, show_chart, show_table
from dashboard.table import Table
from dashboard.theme import GROUP_COLORS
from dashboard.views.time_charts import Line, line_frame, lines
from dashboard.visit import Visit

_MAX_LINES: Final = len(GROUP_COLORS)
_MIB: Final = 2**20
# NVML's reasons for lower clocks (nvml.h, nvmlClocksEventReason*).
_THROTTLES: Final = (
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "hardware"),
    (0x10, "sync boost"),
    (0x20, "heat"),
    (0x40, "temperature, by hardware"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)
Reading = Callable[[LoadPoint], float | None]

_LOADS: Final[tuple[tuple[str, str, str, Reading, str], ...]] = (
    ("batch", "Batch size", "requests per step", lambda point: point.batch, "Requests in an engine step, on average."),
    (
        "kv",
        "KV cache in use",
        "% of blocks",
        lambda point: hundredths(point.kv_share),
        "KV cache blocks used by requests, averaged over the steps. Near 100 %, requests are preempted.",
    ),
    (
        "hits",
        "Prefix hits",
        "% of prompt tokens",
        lambda point: hundredths(point.prefix_hits),
        "Prompt tokens found in the prefix cache, over all prompt tokens.",
    ),
    (
        "waiting",
        "Engine queue",
        "requests waiting",
        lambda point: point.waiting,
        "Requests in the engine's own queue, on average over its steps.",
    ),
)

_SENSORS: Final[tuple[tuple[str, str, str, Callable[[Sensors], float | None]], ...]] = (
    ("sm", "SM activity", "% of time", lambda one: hundredths(one.sm)),
    ("dram", "DRAM activity", "% of time", lambda one: hundredths(one.dram)),
    ("power_watts", "Power", "W", lambda one: one.power_watts),
    ("memory_used_bytes", "Memory in use", "GiB", lambda one: _gib(one.memory_used_bytes)),
    ("temperature_celsius", "Temperature", "°C, highest", lambda one: one.temperature_celsius),
    ("kernel", "Kernel activity", "% of time", lambda one: hundredths(one.kernel)),
)
_SENSOR_HELP: Final[Mapping[str, str]] = {
    "sm": "Share of time in which a streaming multiprocessor had a warp, over all of them (DCGM's SM activity).",
    "dram": "Share of time in which the memory sent or received (DCGM's DRAM activity). High while decoding: the "
    "memory is the limit.",
    "power_watts": "What the device drew, on average.",
    "memory_used_bytes": "Memory in use on the device, by all processes.",
    "temperature_celsius": "The highest reading in each step.",
    "kernel": "Share of time in which at least one kernel ran (NVML's utilisation); not how much of the "
    "device it used.",
}


def load_figures(visit: Visit, load: Load) -> list[Figure]:
    """Return the key figures over all engines."""
    points = [one.whole for one in load.engines]
    steps = sum(point.engine_steps for point in points)
    batch = sum((point.batch or 0) * point.engine_steps for point in points) / steps if steps else None
    cached, prefill = sum(point.cached_tokens for point in points), sum(point.prefill_tokens for point in points)
    most = max((point.kv_most for point in points if point.kv_most is not None), default=None)
    return [
        Figure(
            "Prefix hits",
            visit.formats.percent(cached / (cached + prefill) if cached + prefill else None),
            f"{visit.formats.count(cached)} tokens spared",
            "Prompt tokens found in the prefix cache, over all prompt tokens.",
        ),
        Figure(
            "Batch size",
            "—" if batch is None else f"{batch:.3g}",
            f"KV cache at most {visit.formats.percent(most)} full",
            "Mean number of requests in an engine step. Below: the highest use of any engine's KV cache.",
        ),
    ]


def draw_load(visit: Visit, load: Load) -> None:
    """Draw four small charts of the engines' load."""
    shown = sorted(load.engines, key=lambda one: -one.whole.engine_steps)[:_MAX_LINES]
    colors = charts.colors_in_order(one.engine for one in shown)
    for first in range(0, len(_LOADS), 2):
        for column, (key, title, unit, reading, said) in zip(
            st.columns(2, gap="small"), _LOADS[first : first + 2], strict=True
        ):
            drawn = [_load_line(one, reading, colors) for one in shown]
            with column:
                if not any(value is not None for line in drawn for value in line.values):
                    with panel(title, unit=unit, help=said):
                        note("No engine reported this in the range.")
                    continue
                show_chart(
                    title,
                    lines(load.steps, drawn, visit.formats.zone),
                    key=f"gpu_{key}",
                    unit=unit,
                    help=said + " One line per engine.",
                    data=lambda drawn=drawn: line_frame(load.steps, drawn),
                )
    if len(load.engines) > len(shown):
        note(f"The {len(shown)} busiest of {len(load.engines)} engines are drawn.")


def draw_sensors(visit: Visit, sensors: SensorSeries) -> None:
    """Draw GPU sensor values; sensors that no GPU has are named, never drawn as 0."""
    if not sensors.devices:
        with panel("Sensors", help="Activity, power, memory and temperature of GPUs, sampled by the engine hosts."):
            st.markdown(
                "No GPU readings in this range: the engines use CPUs, "
                "or run elsewhere. SM and DRAM activity, power and memory are **not measured**, which is not zero."
            )
        return
    present = [one for one in _SENSORS if any(device.has(one[0]) for device in sensors.devices)]
    absent = [title for name, title, _, _ in _SENSORS if not any(device.has(name) for device in sensors.devices)]
    colors = charts.colors_in_order(device.device for device in sensors.devices)
    for first in range(0, len(present), 3):
        for column, (name, title, unit, reading) in zip(
            st.columns(3, gap="small"), present[first : first + 3], strict=False
        ):
            drawn = [_sensor_line(device, reading, colors) for device in sensors.devices]
            with column:
                show_chart(
                    title,
                    lines(sensors.steps, drawn, visit.formats.zone),
                    key=f"gpu_{name}",
                    unit=unit,
                    help=_SENSOR_HELP[name] + " One line per device.",
                    data=lambda drawn=drawn: line_frame(sensors.steps, drawn),
                )
    if absent:
        note(
            f"Not measurable on these devices: {', '.join(absent)}. SM and DRAM activity need DCGM's profiling "
            "counters (docs/gpus.md); a sensor that is absent is unknown, not zero."
        )
    faults = fault_frame(sensors.devices)
    if not faults.empty:
        show_table(
            "Throttling and faults",
            faults,
            key="gpu_faults",
            help="Devices that slowed themselves down, or reported an error, in the range.",
        )


def fault_frame(devices: Sequence[Device]) -> Table:
    """Return a row per device that throttled or failed: throttle reasons, uncorrected ECC errors, last XID code."""
    rows: list[dict[str, object]] = []
    for device in devices:
        bits = 0
        for point in device.points:
            bits |= point.throttle_bits
        ecc = max((point.ecc_uncorrected or 0 for point in device.points), default=0)
        xid = next((point.xid for point in reversed(device.points) if point.xid is not None), None)
        if bits or ecc or xid is not None:
            rows.append(
                {
                    "Device": device.device,
                    "Throttled by": _reasons(bits) or None,
                    "ECC errors": ecc,
                    "XID": xid,
                }
            )
    return Table(rows)


def _reasons(bits: int) -> str:
    known = [said for bit, said in _THROTTLES if bits & bit]
    rest = bits & ~sum(bit for bit, _ in _THROTTLES)
    return ", ".join([*known, *([f"{rest:#x}"] if rest else [])])


def _load_line(one: EngineLoad, reading: Reading, colors: Mapping[str, str]) -> Line:
    return Line(_short(one.engine), [reading(point) for point in one.points], colors[one.engine])


def _sensor_line(device: Device, reading: Callable[[Sensors], float | None], colors: Mapping[str, str]) -> Line:
    return Line(_short(device.device), [reading(point) for point in device.points], colors[device.device])


def _short(name: str) -> str:
    """Shorten a name in the middle: UUIDs differ at their ends."""
    return name if len(name) <= 22 else f"{name[:12]}…{name[-8:]}"


def _gib(size: float | None) -> float | None:
    return None if size is None else size / (1024 * _MIB)
