"""`tollkeeper replay`: replays a trace through the gateway."""

import dataclasses
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from contracts.errors import TollkeeperError
from tollkeeper.control_client import ControlClient
from tollkeeper.installation import Installation
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, GatewayUrl, ModelName, RunId, default_gateway
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.replay.formats import TraceFormat, read_trace
from tollkeeper.replay.payers import Assignment, create_payers, revoke_payers
from tollkeeper.replay.progress import ReplayProgress
from tollkeeper.replay.report import print_summary
from tollkeeper.replay.served_model import choose_model
from tollkeeper.replay.session import Run, replay
from tollkeeper.replay.stopping import run_until_signal
from tollkeeper.replay.summary import StoredTotals, Summary
from tollkeeper.replay.trace import Trace

INTERRUPTED: Final = 130  # exit status by convention of a command that Ctrl-C ended


def replay_command(
    trace: Annotated[Path, typer.Argument(help="Trace file, or a ServeGen folder, such as those in bench/traces.")],
    speed: Annotated[float, typer.Option(help="Speed-up: divide the trace's times by this.")] = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of requests (default: all).")] = None,
    from_seconds: Annotated[float, typer.Option(min=0, help="Seconds of the trace to skip.")] = 0.0,
    trace_format: Annotated[
        TraceFormat | None, typer.Option("--format", help="Format of the trace (default: detected).")
    ] = None,
    model: ModelName = "",
    tenants: Annotated[
        int | None, typer.Option(min=1, help="Number of tenants (default: the trace's clients, else 3).")
    ] = None,
    scale_lengths: Annotated[float, typer.Option(help="Multiply prompt and answer lengths by this.")] = 1.0,
    context: Annotated[
        int | None, typer.Option(help="Context length of the model in tokens (default: as the gateway reports it).")
    ] = None,
    run_id: RunId = "",
    checks_records: Annotated[
        bool,
        typer.Option("--check-records/--no-check-records", help="Compare clients' results with the store's records."),
    ] = True,
    gateway_url: GatewayUrl = "",
    control_url: ControlUrl = "",
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded workload through the gateway. Status 1 if an answer failed, 130 if interrupted.

    Requests arrive at their recorded times, regardless of how long answers take. Answers get their recorded lengths;
    lengths beyond the model's context are scaled down. Missing tenants, teams and projects are created; keys are
    created for the run only.
    """
    with one_line_errors():
        read = read_trace(trace, trace_format, limit=limit, from_seconds=from_seconds)
        assignment = Assignment.of(read, tenants)
        with ControlClient.of_installation(data, control_url) as control:
            served = choose_model(control, model)
            served = dataclasses.replace(served, context_tokens=context) if context else served
            run = Run(run_id or new_run_id("replay"), find_gateway(data, gateway_url), served, speed, scale_lengths)
            run.rule  # noqa: B018  # checks the scale before keys are made
            began_at = datetime.now(UTC)
            summary = _play(control, run, read, assignment, began_at)
    if checks_records:
        summary = with_stored_totals(summary, data, began_at)
    if as_json:
        print_json(summary.as_json())
    else:
        print_summary(summary, Console())
    raise typer.Exit(INTERRUPTED if summary.is_interrupted else 1 if summary.errors else 0)


def _play(control: ControlClient, run: Run, trace: Trace, assignment: Assignment, began_at: datetime) -> Summary:
    seconds = trace.requests[-1].at_seconds / run.speed
    payers = create_payers(control, assignment.places, run.model.id, run.run_id, began_at, seconds)
    try:
        with ReplayProgress(len(trace.requests), Console(stderr=True)) as progress:
            return run_until_signal(lambda stop: replay(run, trace, assignment, payers, stop, progress.follow))
    finally:
        if problem := revoke_payers(control, payers):
            warn(problem)


def with_stored_totals(summary: Summary, data: Path, began_at: datetime) -> Summary:
    """Return the summary with the store's totals of the run; warn on stderr if the store does not answer."""
    # Imported here: the store's client would slow down every command.
    from tollkeeper.replay.stored_runs import StoredRuns

    reader = StoredRuns.of_installation(data)
    if reader is None:
        return summary
    try:
        with reader:
            totals = reader.read(summary.setting.run_id, began_at, summary.ok, summary.tokens_out)
    except TollkeeperError as error:
        warn(f"the store was not compared: {error.message}")
        return summary
    stored = StoredTotals(
        requests=totals.requests,
        tokens_in=totals.input_tokens,
        tokens_cached=totals.cached_input_tokens,
        tokens_out=totals.output_tokens,
        cost_usd=str(totals.cost_usd) if not totals.unpriced else None,
        unpriced_requests=totals.unpriced,
    )
    matches = totals.ok == summary.ok and totals.ok_output_tokens == summary.tokens_out
    return dataclasses.replace(summary, stored=stored, stored_match=matches)


def find_gateway(data: Path, gateway_url: str) -> str:
    """Return the gateway's URL: the given one (with or without /v1), else that of `tollkeeper up`, else the default."""
    found = gateway_url or Installation(data).address_of("gateway") or default_gateway()
    return found.rstrip("/").removesuffix("/v1")


def new_run_id(kind: str) -> str:
    """Return a unique run id with the kind of run and the time."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def warn(sentence: str) -> None:
    """Print a warning on stderr."""
    Console(stderr=True).print(Text(f"tollkeeper: {sentence}", style="yellow"), soft_wrap=True)
