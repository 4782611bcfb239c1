"""`tollkeeper loadtest`: finds the highest request rate at which a model meets its SLO."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from contracts.errors import ConfigurationError, TollkeeperError
from tollkeeper.control_client import ControlClient
from tollkeeper.loadtest.knee import Knee, Search
from tollkeeper.loadtest.objective import Objective
from tollkeeper.loadtest.result import Result, cost_at
from tollkeeper.loadtest.step import Step
from tollkeeper.loadtest.sweep import Load, Sweep
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, GatewayUrl, ModelName, RunId
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.replay.command import INTERRUPTED, find_gateway, new_run_id, warn
from tollkeeper.replay.formats import read_trace
from tollkeeper.replay.payers import DEFAULT_TENANTS, Assignment, create_payers, revoke_payers
from tollkeeper.replay.served_model import choose_model
from tollkeeper.replay.session import Run
from tollkeeper.replay.stopping import run_until_signal
from tollkeeper.replay.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from analytics.runs import RunTotals

_LONGEST_SECONDS: Final = 6 * 3600.0  # lifetime of the keys
_COLUMNS: Final[Mapping[str, str]] = {  # heading -> field
    "rate": "rate",
    "sent": "requests",
    "in time": "attainment",
    "good/s": "goodput_per_s",
    "tokens/s": "goodput_tokens_per_s",
    "TTFT p95": "ttft_ms_p95",
    "inter-token p95": "itl_ms_p95",
    "late p99": "lateness_ms_p99",
    "failed": "errors",
    "left": "left",
}


def loadtest_command(
    model: ModelName = "",
    slo_ttft_ms: Annotated[float, typer.Option(help="SLO: maximum time to the first token, in ms.")] = 1000.0,
    slo_inter_token_ms: Annotated[float, typer.Option(help="SLO: maximum mean inter-token latency, in ms.")] = 100.0,
    attainment: Annotated[float, typer.Option(help="Share of answers that must meet both bounds, 0 to 1.")] = 0.9,
    input_tokens: Annotated[int, typer.Option(min=1, help="Prompt length in tokens.")] = 256,
    output_tokens: Annotated[int, typer.Option(min=1, help="Answer length in tokens.")] = 64,
    trace: Annotated[
        Path | None, typer.Option(help="Use the prompt and answer lengths of this trace file instead.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of load at each rate.")] = 10.0,
    first_rate: Annotated[float, typer.Option(help="Initial rate, in requests per second.")] = 1.0,
    highest_rate: Annotated[float, typer.Option(help="Maximum rate, in requests per second.")] = 1000.0,
    resolution: Annotated[
        float, typer.Option(help="Precision of the highest sustainable rate, as a share of it.")
    ] = 0.1,
    usd_per_hour: Annotated[str, typer.Option(help="USD per hour of the machine, for a model of your own.")] = "",
    run_id: RunId = "",
    gateway_url: GatewayUrl = "",
    control_url: ControlUrl = "",
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Find the highest request rate that meets the SLO; report goodput and cost at that rate. Status 1: none found.

    Requests arrive as a Poisson process with a fixed seed, regardless of how long answers take. Each rate has its own
    run id in the store: the run id, a hyphen and the step's number.
    """
    with one_line_errors():
        objective = Objective(slo_ttft_ms, slo_inter_token_ms, attainment)
        search = Search(first_rate, min(0.05, first_rate), highest_rate, resolution)
        load = Load(_lengths(trace, input_tokens, output_tokens), seconds)
        machine_usd = _dollars(usd_per_hour)
        with ControlClient.of_installation(data, control_url) as control:
            name = run_id or new_run_id("loadtest")
            run = Run(name, find_gateway(data, gateway_url), choose_model(control, model))
            began_at = datetime.now(UTC)
            knee, is_interrupted = _sweep(control, run, load, objective, search, began_at)
        totals = None if knee.best is None else _books(data, knee.best, began_at)
    result = Result(
        run_id=run.run_id,
        model=run.model.id,
        objective=objective,
        knee=knee,
        cost=cost_at(knee, totals, machine_usd),
        is_interrupted=is_interrupted,
    )
    if as_json:
        print_json(result.as_json())
    else:
        _print(result)
    raise typer.Exit(INTERRUPTED if is_interrupted else 0 if knee.best is not None else 1)


def _sweep(
    control: ControlClient, run: Run, load: Load, objective: Objective, search: Search, began_at: datetime
) -> tuple[Knee[Step], bool]:
    places = Assignment.of(Trace("", "", ()), DEFAULT_TENANTS).places
    payers = create_payers(control, places, run.model.id, run.run_id, began_at, _LONGEST_SECONDS)
    interrupted = False
    try:
        sweep = Sweep(run, load, objective, payers, _say_step)

        async def work(stop: asyncio.Event) -> Knee[Step]:
            nonlocal interrupted
            found = await sweep.find(search, stop)
            interrupted = stop.is_set()
            return found

        return run_until_signal(work), interrupted
    finally:
        if problem := revoke_payers(control, payers):
            warn(problem)


def _lengths(trace: Path | None, input_tokens: int, output_tokens: int) -> Trace:
    if trace is not None:
        return read_trace(trace)
    return Trace("constant", "constant", (TraceRequest(0.0, input_tokens, output_tokens),))


def _dollars(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigurationError(f"--usd-per-hour is {text[:40]!r}; it must be an amount of 0 or more, such as 2.49")
    return amount


def _books(data: Path, step: Step, began_at: datetime) -> "RunTotals | None":
    # Imported here: the store's client would slow down every command.
    from tollkeeper.replay.stored_runs import StoredRuns

    reader = StoredRuns.of_installation(data)
    if reader is None:
        return None
    try:
        with reader:
            return reader.read(step.run_id, began_at, step.requests - step.errors - step.left, step.tokens_out)
    except TollkeeperError as error:
        warn(f"the cost is unknown: {error.message}")
        return None


def _say_step(step: Step) -> None:
    verdict = "met" if step.keeps_objective else "missed"
    line = f"{step.rate:g} requests/s: {step.attainment:.0%} of {step.requests} answers in time, SLO {verdict}"
    Console(stderr=True).print(Text(line), soft_wrap=True)


def _print(result: Result) -> None:
    rows = [asdict(step) for step in sorted(result.knee.steps, key=lambda step: step.rate)]
    print_table(tuple(_COLUMNS), rows, _cell, "nothing was measured")
    best, console = result.knee.best, Console()
    if best is None:
        console.print(Text("No tested rate meets the SLO.", style="red"))
        return
    bound = "" if result.knee.is_bounded else ", the highest tested rate: the limit is higher"
    costs = {
        "charged, over output tokens": result.cost.charged_per_million_out,
        "charged, over all tokens": result.cost.charged_per_million,
        "machine, over output tokens": result.cost.machine_per_million_out,
    }
    said = "; ".join(f"{usd} ({name})" for name, usd in costs.items() if usd is not None) or "unknown"
    console.print(
        Text(
            f"Highest sustainable rate: {best.rate:g} requests/s{bound}. Goodput: {best.goodput_per_s:g} requests/s, "
            f"{best.goodput_tokens_per_s:g} output tokens/s. USD per million tokens: {said}."
        ),
        soft_wrap=True,
    )


def _cell(step: Mapping[str, Any], column: str) -> str:
    value = step[_COLUMNS[column]]
    if value is None:
        return ""
    return f"{value:.0%}" if column == "in time" else f"{value:.4g}"
