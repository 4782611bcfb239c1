"""`tollkeeper up`, `demo` and `doctor`: run everything on this machine, with demo data, or check this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backends.segment_log.pieces import Pieces
from contracts.errors import ConfigurationError
from tollkeeper.demonstration import Demonstration, watchful
from tollkeeper.doctor import Check, examine
from tollkeeper.options import (
    DEFAULT_DATA,
    AsJson,
    Dashboard,
    Data,
    Engine,
    EngineModel,
    Host,
    HungRestartSeconds,
    Install,
    PortBase,
    ProvidersPython,
    StoreUrl,
    VllmPython,
    Workers,
)
from tollkeeper.own_gateway import gateway_certificate
from tollkeeper.plan import HUNG_RESTART_SECONDS, LOOPBACK, Choices
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.showcase.fill import remove_showcase
from tollkeeper.up import up as run_up


def up_command(
    data: Data = DEFAULT_DATA,
    host: Host = LOOPBACK,
    port_base: PortBase = None,
    dashboard: Dashboard = True,
    store_url: StoreUrl = "",
    engine: Engine = True,
    workers: Workers = 1,
    model: EngineModel = "",
    providers_python: ProvidersPython = "",
    vllm_python: VllmPython = "",
    install: Install = False,
    hung_restart_seconds: HungRestartSeconds = HUNG_RESTART_SECONDS,
) -> None:
    """Run everything on this machine until Ctrl-C."""
    with one_line_errors():
        ports = _ports(port_base)
        choices = Choices(
            *(data, ports, host, store_url, dashboard, engine, workers, model),
            providers_python=providers_python,
            vllm_python=vllm_python,
            installs=install,
            certificate=gateway_certificate(),
            hung_restart_seconds=hung_restart_seconds,
        )
        status = run_up(choices, os.environ, Console())
    raise typer.Exit(status)


def demo_command(
    data: Data = DEFAULT_DATA,
    host: Host = LOOPBACK,
    port_base: PortBase = None,
    dashboard: Dashboard = True,
    store_url: StoreUrl = "",
    engine: Engine = True,
    model: EngineModel = "",
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of traffic to replay.")] = 60,
    speed: Annotated[float, typer.Option(min=0.01, max=1000, help="Speed-up of the recorded traffic.")] = 1,
    opens_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the dashboard in a browser.")] = True,
    slack: Annotated[str, typer.Option(help="Slack webhook to notify (default: a local one).")] = "",
    reset: Annotated[
        bool, typer.Option("--reset", help="Remove the demo's tenants, models and history, then exit.")
    ] = False,
) -> None:
    """Run everything, as `up`, with thirty days of history and recorded traffic of three tenants."""
    if reset:
        with one_line_errors():
            rows = remove_showcase(data, os.environ, typer.echo)
        typer.echo(f"the demo is removed: {rows:,} rows" if rows else "there was no demo")
        return
    with one_line_errors():
        certificate, ports = gateway_certificate(), _ports(port_base)
        choices = Choices(data, ports, host, store_url, dashboard, engine, model=model, certificate=certificate)
        console = Console()
        demonstration = Demonstration(data, console, seconds, speed, opens_browser, slack=slack)
        status = run_up(choices, watchful(os.environ), console, demonstration)
    raise typer.Exit(status)


def doctor_command(
    data: Data = DEFAULT_DATA,
    port_base: PortBase = None,
    forget_losses: Annotated[
        bool,
        typer.Option(
            "--forget-losses",
            help="Mark reported losses of files in the data directory as settled: do not report them again.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine: available and missing parts, and how to get them. Status 1 if Tollkeeper cannot run."""
    with one_line_errors():
        if forget_losses:
            _forget_losses(data)
        report = examine(data, _ports(port_base), os.environ)
    if as_json:
        print_json(report.as_json())
    else:
        _print_checks(report.checks)
    raise typer.Exit(0 if report.ok else 1)


def _forget_losses(data: Path) -> None:
    try:
        Pieces(data).forget_losses()
    except OSError as error:
        raise ConfigurationError(f"{data / 'pieces'} cannot be written ({error.strerror}); fix its owner") from error


def _ports(port_base: int | None) -> Ports:
    return Ports.from_environment(os.environ) if port_base is None else Ports.from_base(port_base)


def _print_checks(checks: tuple[Check, ...]) -> None:
    rows = [{"check": check.name, "status": check.status, "detail": _with_remedy(check)} for check in checks]
    print_table(("check", "status", "detail"), rows, lambda row, column: str(row[column]), "nothing was checked")


def _with_remedy(check: Check) -> str:
    return check.detail if check.status == "ok" or not check.remedy else f"{check.detail}\n→ {check.remedy}"
