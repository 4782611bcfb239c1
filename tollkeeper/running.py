"""`tollkeeper up`, `demo` and `doctor`: everything on this machine, with traffic or without, and what it lacks."""

import os
from typing import Annotated

import typer
from rich.console import Console

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
    PortBase,
    ProvidersPython,
    StoreUrl,
    VllmPython,
    Workers,
)
from tollkeeper.own_gateway import gateway_certificate
from tollkeeper.plan import LOOPBACK, Choices, external_store
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors, print_json, print_table
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
) -> None:
    """Run everything on this machine until Ctrl-C."""
    with one_line_errors():
        ports = _ports(port_base)
        choices = Choices(
            *(data, ports, host, external_store(store_url, ports), dashboard, engine, workers, model),
            providers_python=providers_python,
            vllm_python=vllm_python,
            certificate=gateway_certificate(),
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
    seconds: Annotated[float, typer.Option(min=1, help="How long the traffic lasts.")] = 60,
    speed: Annotated[float, typer.Option(min=0.01, max=1000, help="How fast the recorded traffic is played.")] = 1,
    opens_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the dashboard in a browser.")] = True,
    slack: Annotated[str, typer.Option(help="A Slack webhook to tell; left out: one on this machine.")] = "",
) -> None:
    """Run everything, as `up`, with a minute of a real service's traffic from three tenants."""
    with one_line_errors():
        certificate, ports = gateway_certificate(), _ports(port_base)
        store = external_store(store_url, ports)
        choices = Choices(data, ports, host, store, dashboard, engine, model=model, certificate=certificate)
        console = Console()
        demonstration = Demonstration(data, console, seconds, speed, opens_browser, slack=slack)
        status = run_up(choices, watchful(os.environ), console, demonstration)
    raise typer.Exit(status)


def doctor_command(data: Data = DEFAULT_DATA, port_base: PortBase = None, as_json: AsJson = False) -> None:
    """Say what this machine has, what it lacks and how to get it. Status 1 where Tollkeeper cannot run."""
    with one_line_errors():
        report = examine(data, _ports(port_base), os.environ)
    if as_json:
        print_json(report.as_json())
    else:
        _print_checks(report.checks)
    raise typer.Exit(0 if report.ok else 1)


def _ports(port_base: int | None) -> Ports:
    return Ports.from_environment(os.environ) if port_base is None else Ports.from_base(port_base)


def _print_checks(checks: tuple[Check, ...]) -> None:
    rows = [{"check": check.name, "status": check.status, "detail": _with_remedy(check)} for check in checks]
    print_table(("check", "status", "detail"), rows, lambda row, column: str(row[column]), "nothing was checked")


def _with_remedy(check: Check) -> str:
    return check.detail if check.status == "ok" or not check.remedy else f"{check.detail}\n→ {check.remedy}"
