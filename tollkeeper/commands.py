"""The commands by name: where each is and what it is for. A command's module is loaded when it is asked for.

Together they load most of the system, which takes seconds; `tollkeeper --help` and every single command are to take a
moment. A new command is a row here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import typer

# What stands behind a command's name goes to it as it was written.
_AS_WRITTEN: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command, or a group of commands: `attribute` of `module` is a function or a Typer application."""

    name: str
    module: str
    attribute: str
    help: str

    def run(self, arguments: list[str], called: str) -> int:
        """Load its module and run it; `called` is what it was called by. Gives its status, or raises what is wrong."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            status = typer.main.get_group(found).main(args=arguments, prog_name=called, standalone_mode=False)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command(self.name)(found)
            status = typer.main.get_command(alone).main(args=arguments, prog_name=called, standalone_mode=False)
        return status if isinstance(status, int) else 0


COMMANDS: Final = (
    LazyCommand("up", "tollkeeper.running", "up_command", "Run everything on this machine until Ctrl-C."),
    LazyCommand(
        "demo",
        "tollkeeper.running",
        "demo_command",
        "Run everything, as `up`, with a minute of a real service's traffic from three tenants.",
    ),
    LazyCommand(
        "doctor",
        "tollkeeper.running",
        "doctor_command",
        "Say what this machine has, what it lacks and how to get it. Status 1 where Tollkeeper cannot run.",
    ),
    LazyCommand(
        "replay",
        "tollkeeper.replay.command",
        "replay_command",
        "Play a recorded workload through the gateway. Status 1 where an answer failed, 130 where interrupted.",
    ),
    LazyCommand(
        "loadtest",
        "tollkeeper.loadtest.command",
        "loadtest_command",
        "Raise the rate of requests until the SLO breaks; report goodput and cost at the knee. Status 1 without one.",
    ),
    LazyCommand(
        "top",
        "tollkeeper.top.command",
        "top_command",
        "Show what goes on now: requests, tokens, latency, engines, GPUs, queues, and who spends what.",
    ),
    LazyCommand(
        "plan",
        "tollkeeper.plan_command",
        "plan_command",
        "Simulate a pool: the router's policies, the scheduler's rules and fitted step times on recorded traffic.",
    ),
    LazyCommand(
        "forecast",
        "tollkeeper.forecast_command",
        "forecast_command",
        "Forecast spending by tenant, with intervals, and what the month will come to. Says where too little is known.",
    ),
    LazyCommand(
        "anomalies",
        "tollkeeper.forecast_command",
        "anomalies_command",
        "List tenants that spent unusually on a day, and what drove it: volume, mix, cache or price.",
    ),
    LazyCommand(
        "savings",
        "tollkeeper.forecast_command",
        "savings_command",
        "Recommend how to spend less, the largest saving first, with the evidence.",
    ),
    LazyCommand(
        "backup",
        "tollkeeper.backup",
        "backup_command",
        "Copy the control database and the store into a directory, each as of one moment, while everything runs.",
    ),
    LazyCommand(
        "restore",
        "tollkeeper.backup",
        "restore_command",
        "Fill an empty control database and an empty store from a backup; status 2 where a copy is not equal.",
    ),
    LazyCommand("keys", "tollkeeper.keys", "app", "Keys of applications."),
    LazyCommand("tenants", "tollkeeper.tenant_commands", "app", "Organisations that pay."),
    LazyCommand("audit", "tollkeeper.audit", "app", "Who did what: a log that shows if it was changed."),
    LazyCommand("secrets", "tollkeeper.secrets_command", "app", "Providers' keys, and the installation's secrets."),
    LazyCommand("rows", "tollkeeper.rows_command", "app", "Rows of the control database that cannot be read."),
    LazyCommand("accounts", "tollkeeper.accounts", "app", "People who sign in to the dashboard."),
    LazyCommand("limits", "tollkeeper.limits", "app", "Rate and concurrency limits."),
    LazyCommand("budgets", "tollkeeper.budgets", "app", "Budgets of money and of GPU time."),
    LazyCommand("routes", "tollkeeper.routes", "app", "Names that lead to models, under conditions."),
    LazyCommand("rollout", "tollkeeper.rollout", "app", "Candidates that take a growing share of a route."),
    LazyCommand(
        "gate",
        "tollkeeper.gate.command",
        "gate_command",
        "Ask both models the same prompts, and refuse a candidate that is worse.",
    ),
    LazyCommand(
        "guardrails",
        "tollkeeper.guardrails",
        "app",
        "What is looked for in requests and answers, and what is done about it.",
    ),
    LazyCommand("slo", "tollkeeper.slo", "app", "Service level objectives and error budgets."),
    LazyCommand("alerts", "tollkeeper.alerts", "app", "Alerts: who is told of what."),
    LazyCommand("abuse", "tollkeeper.abuse", "app", "Keys that are misused: what was seen, and what it means."),
    LazyCommand(
        "books",
        "tollkeeper.books",
        "app",
        "Correct recorded cost by booked entries: rerate usage, reverse, approve, list.",
    ),
    LazyCommand("cost", "tollkeeper.cost", "app", "What was used, what it cost and who pays."),
    LazyCommand("gpu", "tollkeeper.gpu", "app", "GPU time: its ledger, its cost, standard cost cards."),
    LazyCommand("prices", "tollkeeper.prices", "app", "Price cards: what providers ask, and what tenants pay."),
    LazyCommand("spool", "tollkeeper.spool", "app", "What waits on disk for the store."),
    LazyCommand(
        "request", "tollkeeper.request", "app", "Single requests: find them, and see where one's time and money went."
    ),
    LazyCommand(
        "store", "tollkeeper.store_command", "app", "The telemetry store: check it, repair its rollups, move it."
    ),
    LazyCommand("retention", "tollkeeper.retention", "app", "How long rows are kept."),
    LazyCommand("users", "tollkeeper.privacy", "users", "End users, as applications name them."),
)


def add_lazily(app: typer.Typer, commands: Iterable[LazyCommand]) -> None:
    """Give an application commands by their names and help alone."""
    for command in commands:
        app.command(command.name, help=command.help, add_help_option=False, context_settings=_AS_WRITTEN)(
            _stand_in(command)
        )


def _stand_in(command: LazyCommand) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        raise typer.Exit(command.run(list(context.args), context.command_path))

    return run
