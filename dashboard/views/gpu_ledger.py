"""The GPU page's ledger: the engines' wall-clock time by category, with unexplained time as its own category."""

from typing import Any, Final

import streamlit as st

from algorithms.gpu_time.ledger import LedgerLines
from analytics.gpu.ledger_series import LedgerSeries
from dashboard.panels import Figure, show_chart, show_table
from dashboard.table import Table
from dashboard.views.time_charts import Line, areas, line_frame
from dashboard.visit import Visit

# Lines from the bottom: useful, recomputed or wasted, waiting, unexplained.
LINES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("attributed_ns", "Useful", "#2f7ed8", "charged to requests"),
    ("recompute_ns", "Recomputed", "#7065d8", "computed again after a preemption"),
    ("wasted_ns", "Wasted", "#d0505c", "spent on requests whose client had disconnected"),
    ("unattributed_ns", "Uncharged", "#2a97a8", "steps charged to no request"),
    ("host_gap_ns", "Host gap", "#c2921a", "between steps with work waiting: the host was busy"),
    ("load_ns", "Loading", "#5a9e3d", "loading a model"),
    ("warmup_ns", "Warm-up", "#1f9d76", "warming up"),
    ("dead_ns", "Engine down", "#c0689a", "from crash to restart"),
    ("sleep_ns", "Asleep", "#a8764a", "asleep"),
    ("idle_ns", "Idle", "#8a94a6", "no requests"),
    ("unexplained_ns", "Unexplained", "#b0559f", "wall-clock time minus all other categories"),
)
_UNEXPLAINED_GOAL: Final = 0.005  # share of wall-clock time: the ledger's bound for unexplained time
LEDGER_HELP: Final = (
    "All of an engine's time is in exactly one category; the shares add up to 100 %. Idle time and "
    "host gaps come from the engine's queue, not from subtraction; unexplained time is a category of its own. "
    "Shares of the wall-clock time of all devices that an engine runs on. Same figures as `tollkeeper gpu ledger`."
)


def ledger_figures(visit: Visit, ledger: LedgerSeries) -> list[Figure]:
    """Return the key figures of a ledger."""
    total = sum(ledger.over_time(), LedgerLines())
    wall, devices = total.wall_ns, len(ledger.by_device())
    in_vain = total.recompute_ns + total.wasted_ns
    idle = total.idle_ns + total.sleep_ns

    def of_wall(amount: int) -> str:
        return visit.formats.percent(amount / wall if wall else None)

    unexplained = abs(total.unexplained_ns) / wall if wall else 0.0
    return [
        Figure(
            "Device time",
            f"{wall / 3.6e12:.3g} h",
            visit.formats.counted(devices, "device"),
            "Wall-clock hours of all devices while an engine ran on them.",
        ),
        Figure(
            "Useful",
            of_wall(total.attributed_ns),
            f"{of_wall(in_vain)} recomputed or wasted",
            "Share of wall-clock time that was charged to requests.",
        ),
        Figure(
            "Host gap",
            of_wall(total.host_gap_ns),
            "work was waiting",
            "Share of wall-clock time between two steps while requests waited: scheduling, sampling, host work.",
        ),
        Figure("Idle", of_wall(idle), "no requests", "Share of wall-clock time with an empty queue, including sleep."),
        Figure(
            "Unexplained",
            of_wall(total.unexplained_ns) if total.unexplained_ns >= 0 else f"−{of_wall(-total.unexplained_ns)}",
            "at most 0.5 %" if unexplained <= _UNEXPLAINED_GOAL else "above 0.5 %",
            "Wall-clock time minus all other categories; below zero if time was counted twice. The bound is 0.5 %.",
            "good" if unexplained <= _UNEXPLAINED_GOAL else "bad",
        ),
    ]


def draw_ledger(visit: Visit, ledger: LedgerSeries) -> None:
    """Draw the ledger over time and by device."""
    over_time = ledger.over_time()
    drawn = [
        Line(
            title,
            [_share(lines, name) for lines in over_time],
            color,
            [f"{visit.formats.percent(_share_of(lines, name))} {said}" for lines in over_time],
        )
        for name, title, color, said in LINES
        if name == "unexplained_ns" or any(getattr(lines, name) for lines in over_time)
    ]
    figure = areas(ledger.steps, drawn, visit.formats.zone, suffix=" %", height=300)
    figure.update_yaxes(range=[0, 100])
    show_chart(
        "Ledger",
        figure,
        key="gpu_ledger",
        unit="% of wall clock",
        help=LEDGER_HELP,
        data=lambda: line_frame(ledger.steps, drawn),
        alt="How all devices spent their wall-clock time: the share of each category, over time",
    )
    frame = ledger_frame(ledger)
    show_table(
        "Ledger by device",
        frame,
        key="gpu_devices",
        help="Hours of wall-clock time, and the share of each category in it, over the whole range.",
        columns=_columns(frame),
    )
    if ledger.until < visit.scope.end:
        until = visit.formats.moment(ledger.until)
        st.caption(f"From finished hours, up to {until} {visit.formats.zone_name}: single steps are kept for 72 hours.")
    if ledger.missing_steps:
        st.caption(
            f":material/warning: {visit.formats.counted(ledger.missing_steps, 'step record')} never arrived: their "
            "time is unexplained."
        )
    if ledger.repeated_steps:
        st.caption(
            f":material/warning: {visit.formats.counted(ledger.repeated_steps, 'step record')} arrived more than once: "
            "their time is counted more than once, and unexplained time falls below zero."
        )


def ledger_frame(ledger: LedgerSeries) -> Table:
    """Return a row per device: wall-clock hours, and each category in percent. Categories that are 0 everywhere are
    omitted, except unexplained time.
    """
    rows: list[dict[str, object]] = []
    engines = {device: one for one in ledger.engines for device in one.devices}
    for device, lines in ledger.by_device().items():
        engine = engines[device]
        shares = {title: _share(lines, name) for name, title, _, _ in LINES}
        rows.append(
            {
                "Device": device,
                "Replica": engine.replica,
                "Model": engine.model,
                "Hours": lines.wall_ns / 3.6e12,
                **shares,
            }
        )
    columns = ["Device", "Replica", "Model", "Hours", *(title for _, title, _, _ in LINES)]
    frame = Table(rows, columns=columns)
    unused = [title for name, title, _, _ in LINES if name != "unexplained_ns" and not any(frame[title])]
    return frame.without(*unused)


def _columns(frame: Table) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    known: dict[str, Any] = {
        "Device": st.column_config.TextColumn(help="The GPU's UUID; an engine without a GPU is its own device"),
        "Hours": number("Hours", format="%.3f", help="Wall-clock time in which an engine ran on it"),
    }
    for _, title, _, said in LINES:
        known[title] = number(f"{title} %", format="%.2f", help=said[:1].upper() + said[1:])
    return {name: column for name, column in known.items() if name in frame.columns}


def _share_of(lines: LedgerLines, name: str) -> float | None:
    return getattr(lines, name) / lines.wall_ns if lines.wall_ns else None


def _share(lines: LedgerLines, name: str) -> float | None:
    share = _share_of(lines, name)
    return None if share is None else share * 100
