"""The questions of finance, team leads and operators: pages, invoices, alert rules, plans and forecasts, and how fast.

`--rows` runs some of them: pages, invoices, alerts (of one filled store), planner, live, forecast.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from backends.processes.compiled import use_compiled
from bench.report import Report, run_bench

REQUESTS: Final = 10_000_000
PLANNED: Final = 1_000_000
REPLICAS: Final = 16
MUST_PLAN_SECONDS: Final = 30.0
_QUICK_PLANNED: Final = 50_000
_QUICK_REQUESTS: Final = 200_000
_OF_THE_STORE: Final = ("pages", "invoices", "alerts")
_SETS: Final = ("planner", "forecast", "live", *_OF_THE_STORE)


def measure(report: Report) -> None:
    """Measure what issue 9 bounds: pages, invoices, alert rules, plans and their truth, forecasts and theirs."""
    chosen = report.options.rows.split(",") if report.options.rows else _SETS
    if "planner" in chosen:
        _measure_planner(report)
    if "forecast" in chosen:
        from bench.forecast_backtest import forecast_rows  # here, as below: each set loads what it needs

        forecast_rows(report)
    if "live" in chosen:
        from bench.planner_live import live_rows

        live_rows(report)
    if set(_OF_THE_STORE) & set(chosen):
        _measure_store(report, chosen)


def _measure_planner(report: Report) -> None:
    """A million requests on sixteen replicas of an 8B model on an H200, chosen among by the default policy."""
    from algorithms.gpu_time.step_model import StepModel
    from analytics.planner.setup import ReplicaSetup
    from analytics.planner.simulation import Simulation
    from analytics.planner.workload import poisson
    from bench.gpu_steps import read_runs
    from bench.planner_recorded import RECORDED

    runs = read_runs()
    for recorded in RECORDED:
        outcome = recorded.predicted(runs)
        error = abs(outcome.seconds / recorded.wall_seconds - 1)
        report.add(f"recorded_{recorded.name}", error, f"off the H200's {recorded.wall_seconds} s", must=0.15,
                   better="lower", n=recorded.requests)  # fmt: skip
    steps = StepModel(token_ns=27_000, ridge_tokens=170, pair_ns=0.26, read_ns=40, logit_ns=2_000, fixed_ns=300_000)
    setup = ReplicaSetup(steps=steps, max_batch_tokens=8_192, max_sequences=256, kv_blocks=27_000, host_gap_ns=200_000)
    count = _QUICK_PLANNED if report.quick else PLANNED
    workload = poisson(count, 200.0, 512, 128, seed=1)
    began, began_cpu = time.perf_counter(), time.thread_time()
    outcome = Simulation([setup] * REPLICAS).run(workload)
    cpu, wall = time.thread_time() - began_cpu, time.perf_counter() - began
    if outcome.served != count:
        raise RuntimeError(f"{count - outcome.served} of {count} planned requests were not served")
    short = f"{count:,} requests, where the bound is for {PLANNED:,}" if report.quick else ""
    report.add("plan_1m_x_16", cpu, f"s of one core for {count:,} requests x {REPLICAS} replicas",
               must=MUST_PLAN_SECONDS, better="lower", n=count, unjudged=short)  # fmt: skip
    report.add("plan_1m_x_16_wall", wall, "s", better="lower", n=count)
    report.add("plan_rate", count / cpu, "planned requests/s of one core", n=count)


def _measure_store(report: Report, chosen: Sequence[str]) -> None:
    from bench.analytics_alerts import alert_rows
    from bench.analytics_invoices import invoice_rows
    from bench.analytics_pages import page_rows
    from bench.kept_month import kept_month

    rows: int = report.options.requests or (_QUICK_REQUESTS if report.quick else REQUESTS)
    with kept_month(rows) as (store, month):
        reader = store.client("reader")
        if "pages" in chosen:
            page_rows(report, reader, month.start, month.end, rows, REQUESTS)
        if "invoices" in chosen:
            invoice_rows(report, reader, month.start, month.end, rows, REQUESTS)
        if "alerts" in chosen:
            alert_rows(report, reader, month.end, rows, REQUESTS)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default="", help=f"some of {', '.join(_SETS)}; all where left out")
    parser.add_argument("--requests", type=int, default=0, help="how many in the store, instead of 10 million")
    parser.add_argument("--live-runs", type=int, default=3, help="of the torch engine at each load")
    parser.add_argument("--live-seconds", type=float, default=60.0, help="of each of them")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, on the compiled modules where there are any."""
    use_compiled()
    return run_bench("analytics", measure, arguments, _add_options)


if __name__ == "__main__":
    sys.exit(main())
