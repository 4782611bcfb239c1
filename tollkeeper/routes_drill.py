"""`tollkeeper routes drill`: simulates a provider's outage."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import Snapshot
from gateway.config.file import FileSource
from gateway.routing.drill.drill import DrillPlan, DrillReport, NameReport, play
from gateway.routing.drill.virtual_time import run_at_once
from gateway.routing.drill.world import named_fault
from tollkeeper.options import AsJson
from tollkeeper.printing import one_line_errors, print_json, print_table

_COLUMNS = ("name", "requests", "lost", "answered by", "slowest (s)")


def drill_command(
    provider: Annotated[
        str, typer.Argument(help="Provider that fails: a target's `provider`, or its kind if it names none.")
    ],
    config: Annotated[Path, typer.Option(help="A gateway's YAML file.")],
    fault: Annotated[str, typer.Option(help="Kind of failure: refused, error, limited or stall.")] = "error",
    seconds: Annotated[float, typer.Option(help="Outage duration in seconds.")] = 60.0,
    rate: Annotated[float, typer.Option(help="Requests per second for each model and route of the provider.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Simulate a provider's outage: who would answer, what would be lost, and when it would recover.

    Uses the gateway's own code with the file's breakers, budgets, playbooks and timeouts, in virtual time. Nothing is
    called. Status 1 if requests are lost that another target could have answered.
    """
    with one_line_errors():
        source = FileSource(config, b"")
        serving = source.serving()
        snapshot = Snapshot(
            revision=0,
            keys={},
            models=serving.models,
            pools=serving.pools,
            prices=PriceBook(),
            routes=serving.routes,
            playbooks=source.playbooks(),
        )
        plan = DrillPlan(provider, named_fault(fault), outage_seconds=seconds, requests_per_second=rate)
        with _quiet():
            report = run_at_once(play(snapshot, plan))
    if as_json:
        print_json(_plain(report))
    else:
        _print(report)
    if not report.is_passed:
        raise typer.Exit(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the gateway's log of the outage: the report contains the same facts."""
    log = logging.getLogger("gateway.routing.attempts")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _plain(report: DrillReport) -> dict[str, object]:
    return {
        "provider": report.plan.provider,
        "fault": report.plan.fault,
        "passed": report.is_passed,
        "calls_met": report.calls_met,
        "left_alone_after_seconds": _rounded(report.left_alone_after_seconds),
        "back_after_seconds": _rounded(report.back_after_seconds),
        "names": [
            {
                "name": one.name,
                "has_others": one.has_others,
                "requests": one.requests,
                "failed": one.failed,
                "failed_afterwards": one.failed_afterwards,
                "answered_by": dict(one.answered_by),
                "worst_seconds": _rounded(one.worst_seconds),
            }
            for one in report.names
        ],
    }


def _print(report: DrillReport) -> None:
    plan = report.plan
    print_table(_COLUMNS, [_row(one) for one in report.names], _cell, "no model or route uses it")
    left, back = report.left_alone_after_seconds, report.back_after_seconds
    typer.echo(
        f"{plan.provider} is out for {plan.outage_seconds:g} s ({plan.fault}); {report.calls_met} calls affected"
    )
    typer.echo("its circuit never opens" if left is None else f"its circuit opens after {left:.1f} s")
    typer.echo("it does not recover" if back is None else f"it has recovered {back:.1f} s after the outage")


def _row(one: NameReport) -> Mapping[str, object]:
    by = ", ".join(f"{name} {count}" for name, count in one.answered_by.most_common())
    return {
        "name": one.name,
        "requests": one.requests,
        "lost": one.failed + one.failed_afterwards,
        "answered by": by if one.has_others else f"{by or 'nobody'}; no other provider serves it",
        "slowest (s)": f"{one.worst_seconds:.1f}",
    }


def _cell(row: Mapping[str, object], column: str) -> str:
    return str(row[column])


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
