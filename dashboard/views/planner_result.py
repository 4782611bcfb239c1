"""The result of a simulation beside the current state: key figures, percentiles, utilisation, and the command."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import streamlit as st

from dashboard import charts
from dashboard.money_column import Money
from dashboard.panels import Figure, note, show_chart, show_figures, show_table
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.theme import GROUP_COLORS, REST_COLOR
from dashboard.visit import Visit

_LEVELS: Final = ("p50", "p90", "p95", "p99")
_COLORS: Final = (REST_COLOR, GROUP_COLORS[0], GROUP_COLORS[2])
_MS: Final = "%.4g ms"
_number = st.column_config.NumberColumn
_COLUMNS: Final[dict[str, Any]] = {
    "Plan": st.column_config.TextColumn(width="medium"),
    "Replicas": _number(format="localized"),
    "Served": _number(format="localized", help="Requests that were answered"),
    "Refused": _number(format="localized", help="Requests that fit into no replica's cache"),
    "TTFT p50": _number(format=_MS, help="Time to first token; exact"),
    "TTFT p95": _number(format=_MS, help="Time to first token; exact"),
    "Inter-token p50": _number(format=_MS, help="Inter-token latency (accurate to 1 %)"),
    "Inter-token p95": _number(format=_MS, help="Inter-token latency (accurate to 1 %)"),
    "Busy": _number(format="%.1f %%", help="Mean share of time in which replicas were in a step"),
    "Cost": Money(4, "All replicas, from the first arrival to the last token"),
    "Per M tokens": Money(4, "Per million output tokens"),
}


def show_result(visit: Visit, answer: Mapping[str, Any], seconds: float, command: str) -> None:
    """Draw the result of a simulation, as `tollkeeper plan --json` prints it."""
    plans = _plans(answer)
    _figures(visit, answer, plans)
    show_table(
        "Outcome",
        outcome_frame(plans),
        key="plan_outcome",
        columns=_COLUMNS,
        formats=visit.formats,
        help="One row per simulation.",
    )
    left, right = st.columns(2, gap="small")
    for column, name, title, help in (
        (left, "ttft_ms", "Time to first token", "From arrival to first token; nearest rank, exact."),
        (right, "gap_ms", "Inter-token latency", "Time between two tokens of one answer (accurate to 1 %)."),
    ):
        with column:
            show_chart(
                title,
                _percentiles(plans, name),
                key=f"plan_{name}",
                unit="ms",
                help=help,
                data=lambda name=name: percentiles_frame(plans, name),
            )
    show_chart(
        "Utilisation of each replica",
        _busy(plans),
        key="plan_busy",
        unit="% of its time in a step",
        help="The rest is idle or host time between two steps.",
        data=lambda: busy_frame(plans),
    )
    with st.expander("The same at the command line, and as JSON"):
        st.code(command, language="bash", wrap_lines=True)
        st.download_button(
            "JSON", json.dumps(answer, indent=2), "plan.json", "application/json", key="plan_json", on_click="ignore"
        )
    workload = answer["workload"]
    note(f"{workload['source']}, simulated in {seconds:.1f} s.")


def _plans(answer: Mapping[str, Any]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the simulations by name, each with its number of replicas and its outcome."""
    replicas = int(answer["replicas"])
    plans = {"current": (replicas, answer["now"])}
    if "what_if" in answer:
        plans["what if"] = (replicas, answer["what_if"]["outcome"])
    sizing = answer.get("sizing")
    if sizing is not None and sizing["outcome"] is not None:
        plans["needed"] = (int(sizing["replicas"]), sizing["outcome"])
    return plans


def _figures(visit: Visit, answer: Mapping[str, Any], plans: Mapping[str, tuple[int, Mapping[str, Any]]]) -> None:
    formats = visit.formats
    now, last = plans["current"][1], list(plans.values())[-1][1]
    figures = [
        Figure(
            "TTFT p95",
            _ms(visit, last, "ttft_ms"),
            f"current {_ms(visit, now, 'ttft_ms')}",
            "For the simulated change.",
        ),
        Figure(
            "Inter-token p95",
            _ms(visit, last, "gap_ms"),
            f"current {_ms(visit, now, 'gap_ms')}",
            "For the simulated change.",
        ),
        Figure(
            "Replicas busy",
            formats.percent(last["busy_share"]),
            f"current {formats.percent(now['busy_share'])}",
            "Mean share of time in a step.",
        ),
        Figure(
            "Cost",
            formats.money(_decimal(last["cost_usd"])),
            f"current {formats.money(_decimal(now['cost_usd']))}",
            "For all replicas over the workload. Unknown without a price per GPU hour.",
        ),
    ]
    sizing = answer.get("sizing")
    if sizing is not None:
        tried = ", ".join(map(str, sizing["tried"]))
        found = formats.count(sizing["replicas"]) if sizing["replicas"] else "none"
        figures.insert(
            0,
            Figure(
                "Replicas needed",
                found,
                f"simulated {tried}",
                sizing["reason"] or "The fewest that meet the objective for every request.",
                None if sizing["replicas"] else "bad",
            ),
        )
    show_figures(figures)


def _ms(visit: Visit, outcome: Mapping[str, Any], name: str) -> str:
    found = outcome[name]
    return visit.formats.duration(None if found is None else found["p95"] * 1e6)


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def outcome_frame(plans: Mapping[str, tuple[int, Mapping[str, Any]]]) -> Table:
    """Return a row per simulation; times in milliseconds, money in USD."""
    return Table(
        [
            {
                "Plan": name,
                "Replicas": replicas,
                "Served": outcome["served"],
                "Refused": outcome["refused"],
                "TTFT p50": (outcome["ttft_ms"] or {}).get("p50"),
                "TTFT p95": (outcome["ttft_ms"] or {}).get("p95"),
                "Inter-token p50": (outcome["gap_ms"] or {}).get("p50"),
                "Inter-token p95": (outcome["gap_ms"] or {}).get("p95"),
                "Busy": 100 * outcome["busy_share"],
                "Cost": None if outcome["cost_usd"] is None else float(outcome["cost_usd"]),
                "Per M tokens": None
                if outcome["usd_per_million_output_tokens"] is None
                else float(outcome["usd_per_million_output_tokens"]),
            }
            for name, (replicas, outcome) in plans.items()
        ]
    )


def percentiles_frame(plans: Mapping[str, tuple[int, Mapping[str, Any]]], name: str) -> Table:
    """Return percentiles in milliseconds, one row per simulation and percentile."""
    return Table(
        [
            (plan, level, outcome[name][level])
            for plan, (_, outcome) in plans.items()
            if outcome[name] is not None
            for level in _LEVELS
        ],
        columns=["plan", "percentile", "ms"],
    )


def busy_frame(plans: Mapping[str, tuple[int, Mapping[str, Any]]]) -> Table:
    """Return a row per simulation and replica: share of time in a step, peak share of its KV cache, preemptions."""
    return Table(
        [
            (plan, place, use["busy_share"], use["peak_kv_share"], use["preemptions"])
            for plan, (_, outcome) in plans.items()
            for place, use in enumerate(outcome["replicas"])
        ],
        columns=["plan", "replica", "busy_share", "peak_kv_share", "preemptions"],
    )


def _percentiles(plans: Mapping[str, tuple[int, Mapping[str, Any]]], name: str) -> Plot:
    figure = Plot()
    for color, (plan, (_, outcome)) in zip(_COLORS, plans.items(), strict=False):
        found = outcome[name]
        if found is None:
            continue
        values = [found[level] for level in _LEVELS]
        figure.add_bar(
            name=plan,
            x=list(_LEVELS),
            y=values,
            text=[f"{value:,.3g}" for value in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y:,.4g} ms",
            marker={"color": color},
        )
    figure.update_layout(barmode="group", bargap=0.3)
    figure = charts.style(figure, suffix=" ms")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.2, "x": 0}, margin={"t": 30})
    return figure


def _busy(plans: Mapping[str, tuple[int, Mapping[str, Any]]]) -> Plot:
    figure = Plot()
    for color, (plan, (_, outcome)) in zip(_COLORS, plans.items(), strict=False):
        uses = outcome["replicas"]
        figure.add_bar(
            name=plan,
            x=[str(place + 1) for place in range(len(uses))],
            y=[100 * use["busy_share"] for use in uses],
            customdata=[
                f"cache at most {100 * use['peak_kv_share']:.0f} % full, {use['preemptions']:,} preemptions"
                for use in uses
            ],
            hovertemplate="%{y:.1f} % busy, %{customdata}",
            marker={"color": color},
        )
    figure.update_layout(barmode="group", bargap=0.3)
    figure = charts.style(figure, suffix=" %", height=180)
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.25, "x": 0}, margin={"t": 30})
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[0, 100])
    return figure
