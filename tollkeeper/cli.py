"""The command line. Commands read their options, call what does the work, and print; nothing is decided here."""

import os
from importlib.metadata import version as installed_version
from typing import Annotated

import typer
from rich.console import Console

from tollkeeper import (
    alerts,
    budgets,
    cost,
    gpu,
    keys,
    limits,
    prices,
    privacy,
    retention,
    routes,
    slo,
    spool,
    store_command,
    tenants,
)
from tollkeeper.backup import backup_command, restore_command
from tollkeeper.demonstration import Demonstration
from tollkeeper.doctor import Check, examine
from tollkeeper.forecast_command import anomalies_command, forecast_command, savings_command
from tollkeeper.loadtest.command import loadtest_command
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
from tollkeeper.plan import LOOPBACK, Choices
from tollkeeper.plan_command import plan_command
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.replay.command import replay_command
from tollkeeper.top.command import top_command
from tollkeeper.up import up as run_up

app = typer.Typer(
    name="tollkeeper",
    help="The LLM gateway whose books close.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # their frames show local variables, and those hold keys
)
app.command("replay")(replay_command)
app.command("loadtest")(loadtest_command)
app.command("top")(top_command)
app.command("plan")(plan_command)
app.command("forecast")(forecast_command)
app.command("anomalies")(anomalies_command)
app.command("savings")(savings_command)
app.command("backup")(backup_command)
app.command("restore")(restore_command)
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")
app.add_typer(limits.app, name="limits")
app.add_typer(budgets.app, name="budgets")
app.add_typer(routes.app, name="routes")
app.add_typer(slo.app, name="slo")
app.add_typer(alerts.app, name="alerts")
app.add_typer(cost.app, name="cost")
app.add_typer(gpu.app, name="gpu")
app.add_typer(prices.app, name="prices")
app.add_typer(spool.app, name="spool")
app.add_typer(store_command.app, name="store")
app.add_typer(retention.app, name="retention")
app.add_typer(privacy.users, name="users")
tenants.app.command("erase")(privacy.erase_tenant_command)
tenants.app.command("export")(privacy.export_tenant_command)


@app.command()
def up(
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
        choices = Choices(
            *(data, _ports(port_base), host, store_url, dashboard, engine, workers, model),
            providers_python=providers_python,
            vllm_python=vllm_python,
            certificate=gateway_certificate(),
        )
        status = run_up(choices, os.environ, Console())
    raise typer.Exit(status)


@app.command()
def demo(
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
    slack: Annotated[str, typer.Option(help="A Slack webhook that is told of a budget and a promise.")] = "",
) -> None:
    """Run everything, as `up`, with a minute of a real service's traffic from three tenants."""
    with one_line_errors():
        certificate = gateway_certificate()
        choices = Choices(
            data, _ports(port_base), host, store_url, dashboard, engine, model=model, certificate=certificate
        )
        console = Console()
        demonstration = Demonstration(data, console, seconds, speed, opens_browser, slack=slack)
        status = run_up(choices, os.environ, console, demonstration)
    raise typer.Exit(status)


@app.command()
def doctor(data: Data = DEFAULT_DATA, port_base: PortBase = None, as_json: AsJson = False) -> None:
    """Say what this machine has, what it lacks and how to get it. Status 1 where Tollkeeper cannot run."""
    with one_line_errors():
        report = examine(data, _ports(port_base), os.environ)
    if as_json:
        print_json(report.as_json())
    else:
        _print_checks(report.checks)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("tollkeeper"))


def _ports(port_base: int | None) -> Ports:
    return Ports.from_environment(os.environ) if port_base is None else Ports.from_base(port_base)


def _print_checks(checks: tuple[Check, ...]) -> None:
    rows = [{"check": check.name, "status": check.status, "detail": _with_remedy(check)} for check in checks]
    print_table(("check", "status", "detail"), rows, lambda row, column: str(row[column]), "nothing was checked")


def _with_remedy(check: Check) -> str:
    return check.detail if check.status == "ok" or not check.remedy else f"{check.detail}\n→ {check.remedy}"
