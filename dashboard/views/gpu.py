"""The GPU page: GPU time by category, tenant and team, and utilisation of engines and devices."""

from datetime import timedelta
from typing import Final

import streamlit as st

from analytics.gpu.ledger_series import ledger_series
from analytics.gpu.load import Load, engine_load
from analytics.gpu.sensors import gpu_sensors
from analytics.gpu.use import GpuUse, gpu_use
from contracts.errors import InvalidRequest, TollkeeperError
from dashboard import charts, states
from dashboard.page import Page
from dashboard.panels import Figure, contained, note, panel, show_chart, show_figures
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.theme import REST_COLOR
from dashboard.views.gpu_ledger import LEDGER_HELP, draw_ledger, ledger_figures
from dashboard.views.gpu_load import draw_load, draw_sensors, load_figures
from dashboard.views.time_charts import Line, line_frame, stacked_bars
from dashboard.visit import Visit

_MAX_TEAMS: Final = 11  # more colours cannot be distinguished
_NS_PER_SECOND: Final = 1e9
_MONTH_SECONDS: Final = 60


def draw(visit: Visit) -> None:
    """Draw GPU time for all viewers; ledger and devices only for viewers of the whole installation."""
    covered = visit.scope.covered
    note(f"{visit.formats.period(covered.start, covered.end)}, one point per {_step(visit)}")
    use = _use(visit)
    if visit.viewer.access.is_bound:
        _draw_use(visit, use)
        note("GPU ledger, engines and devices serve all tenants. Only viewers of the whole installation can see them.")
        return
    load = visit.read(engine_load, visit.scope)
    _draw_ledger(visit, load, use)
    left, right = st.columns([3, 2], gap="small")
    with left:
        _draw_use(visit, use)
    with right:
        _draw_shares(visit, use)
    if load.engines:
        draw_load(visit, load)
    with contained():
        _sensors(visit)


def _sensors(visit: Visit) -> None:
    try:
        sensors = visit.read(gpu_sensors, visit.scope)
    except InvalidRequest as error:  # the range is longer than the retention: not an error
        with panel("Sensors", help="Activity, power, memory and temperature of GPUs, sampled by the engine hosts."):
            note(states.sentence(f"{error.message}."))
        return
    draw_sensors(visit, sensors)


def _use(visit: Visit) -> GpuUse:
    """Return GPU time by tenant and team; for months it is read in the background, and empty until then."""
    scope = visit.scope
    if scope.grain != "day":
        return visit.read(gpu_use, scope)
    found = visit.read_slow(gpu_use, scope.settled, keep_seconds=_MONTH_SECONDS)
    return GpuUse(timedelta(days=1), (), {}, {}, is_complete=False) if isinstance(found, Pending) else found


def _draw_ledger(visit: Visit, load: Load, use: GpuUse) -> None:
    try:
        ledger = visit.read(ledger_series, visit.scope)
    except TollkeeperError:
        show_figures([*load_figures(visit, load), _used(visit, use)])
        with panel("Ledger", help=LEDGER_HELP):
            raise
    if not ledger.engines:
        with panel("Ledger", unit="% of wall clock", help=LEDGER_HELP):
            st.markdown(
                "No engine reported a step in this range. `tollkeeper up` starts one with a small "
                "built-in model; `tollkeeper up --model NAME=DIRECTORY` serves another, on a GPU if there is one."
            )
            st.caption("Requests to hosted providers have no GPU time. Their cost is on the page Costs.")
        return
    show_figures([*ledger_figures(visit, ledger), *load_figures(visit, load)])
    draw_ledger(visit, ledger)


def _draw_use(visit: Visit, use: GpuUse) -> None:
    if not use.teams:
        with panel("GPU time by team", help="GPU time charged to requests."):
            note("No GPU time was charged in this range." if use.is_complete else "Loading …")
        return
    shown = list(use.teams)[:_MAX_TEAMS]
    colors = charts.assign_colors(sorted(_payer(payer) for payer in shown))
    drawn = [_use_line(visit, _payer(payer), use.teams[payer], colors[_payer(payer)]) for payer in shown]
    if len(use.teams) > len(shown):
        rest = [sum(each) for each in zip(*list(use.teams.values())[_MAX_TEAMS:], strict=True)]
        drawn.append(_use_line(visit, "all others", rest, REST_COLOR))
    show_chart(
        "GPU time by team",
        stacked_bars(use.steps, drawn, visit.formats.zone, suffix=" s"),
        key="gpu_use",
        unit=f"seconds per {_step(visit)}",
        help="GPU time charged to requests, by tenant and team, at the start of each request. "
        "An engine step's time is split over its requests by the work of each.",
        data=lambda: line_frame(use.steps, drawn),
    )


def _draw_shares(visit: Visit, use: GpuUse) -> None:
    total_ns = use.total_ns  # once: it sums all steps of all payers
    frame = Table(
        [
            {
                "Tenant": charts.group_name(tenant),
                "Team": team,
                "GPU time": sum(by_step) / _NS_PER_SECOND,
                "Share": 100 * sum(by_step) / total_ns if total_ns else None,
                "Requests": use.requests[tenant, team],
            }
            for (tenant, team), by_step in use.teams.items()
        ],
        columns=["Tenant", "Team", "GPU time", "Share", "Requests"],
    )
    number = st.column_config.NumberColumn
    with panel("Share by team", help="The same GPU time over the whole range; an empty team is a key without one."):
        if frame.empty:
            note("No GPU time in this range." if use.is_complete else "Loading …")
            return
        st.dataframe(
            frame.as_arrow(),
            key="gpu_shares",
            hide_index=True,
            lazy=False,
            height=248,
            column_config={
                "GPU time": number("GPU s", format="%.2f", help="Seconds of GPU time"),
                "Share": st.column_config.ProgressColumn(
                    "Share %", format="%.1f", min_value=0, max_value=100, help="Of all GPU time that was charged"
                ),
                "Requests": number(format="localized", help="Requests that took GPU time"),
            },
            alt="GPU time by tenant and team",
        )


def _used(visit: Visit, use: GpuUse) -> Figure:
    return Figure("Charged", visit.formats.duration(use.total_ns), "of GPU time", "GPU time that requests took.")


def _use_line(visit: Visit, name: str, amounts: tuple[int, ...] | list[int], color: str) -> Line:
    texts = [visit.formats.duration(amount) for amount in amounts]
    return Line(name, [amount / _NS_PER_SECOND for amount in amounts], color, texts)


def _payer(payer: tuple[str, str]) -> str:
    tenant, team = payer
    return f"{charts.group_name(tenant)} / {team}" if team else charts.group_name(tenant)


def _step(visit: Visit) -> str:
    return charts.step_name(timedelta(seconds=visit.scope.step_seconds))


GPU = Page(
    "GPU",
    "gpu",
    ":material/memory:",
    draw,
    filters=("range", "tenant", "team", "model"),
    about="GPU time by category, tenant and team, and utilisation of engines and devices.",
)
