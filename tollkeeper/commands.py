"""The table of commands: name, module and help. A command's module is imported when the command is called.

All modules together take seconds to import; `tollkeeper --help` and a single command must start fast. A new command is
a row here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from tollkeeper.examples import add_examples
from tollkeeper.older_options import with_new_names
from tollkeeper.plain_help import first_sentence, with_plain_help
from tollkeeper.resources.table import RESOURCES


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command, or a group of commands: `attribute` of `module` is a function or a Typer application."""

    name: str
    module: str
    attribute: str
    help: str
    is_hidden: bool = False  # an older name
    epilog: str | None = None
    is_usage_one: bool = False  # exits with 1 for a wrong option, because 2 has another meaning

    def load(self) -> Any:
        """Import the module and return the command."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            return with_plain_help(typer.main.get_group(found))
        alone = typer.Typer(add_completion=False)
        cls = UsageIsOne if self.is_usage_one else None
        alone.command(self.name, cls=cls, epilog=self.epilog)(found)
        return with_plain_help(typer.main.get_command(alone))


def _path_of(ctx: Any) -> list[str]:
    """Return the names of a context's command and its groups, without the program's."""
    names = []
    while ctx is not None and ctx.parent is not None:
        names.append(str(ctx.info_name))
        ctx = ctx.parent
    return names[::-1]


class UsageIsOne(TyperCommand):
    """A Typer command that exits with status 1 for a wrong option."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments. Raises the usage error with status 1."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if not isinstance(error, typer.Exit) and hasattr(error, "exit_code"):
                error.exit_code = 1
            raise


class LazyGroup(TyperGroup):
    """A command group that imports a command only to run it, show its help or complete its options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the loaded command and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        lazy: LazyCommand | None = getattr(getattr(command, "callback", None), "lazy", None)
        if lazy is not None:
            command = lazy.load()
            path = (*_path_of(ctx), str(name))
            add_examples(command, path)
            rest = with_new_names(path, rest)
        return (name, command, rest)


def _resource_commands() -> Iterable[LazyCommand]:
    """Yield the command groups of resources, from their own modules if they have more commands; older names hidden."""
    for resource in RESOURCES:
        module, attribute = resource.module or "tollkeeper.resources.apps", "app"
        if not resource.module:
            attribute = resource.name.replace("-", "_")
        yield LazyCommand(resource.name, module, attribute, resource.about)
        for alias in resource.aliases:
            yield LazyCommand(alias, module, attribute, resource.about, is_hidden=True)


COMMANDS: Final = (
    LazyCommand(
        "init",
        "tollkeeper.init_command",
        "init_command",
        "Set up an installation: ask five questions, write a file for `tollkeeper apply`, start everything.",
    ),
    LazyCommand("up", "tollkeeper.running", "up_command", "Run everything on this machine until Ctrl-C."),
    LazyCommand(
        "demo",
        "tollkeeper.running",
        "demo_command",
        "Run everything, as `up`, with thirty days of history and recorded traffic of three tenants.",
    ),
    LazyCommand(
        "doctor",
        "tollkeeper.running",
        "doctor_command",
        "Check this machine: available and missing parts, and how to get them. Status 1 if Tollkeeper cannot run.",
    ),
    LazyCommand(
        "replay",
        "tollkeeper.replay.command",
        "replay_command",
        "Replay a recorded workload through the gateway. Status 1 if an answer failed, 130 if interrupted.",
    ),
    LazyCommand(
        "loadtest",
        "tollkeeper.loadtest.command",
        "loadtest_command",
        "Find the highest request rate that meets the SLO; report goodput and cost at that rate. Status 1: none found.",
    ),
    LazyCommand(
        "top",
        "tollkeeper.top.command",
        "top_command",
        "Show live figures: requests, tokens, latency, engines, GPUs, queues, spending by tenant.",
    ),
    LazyCommand(
        "plan",
        "tollkeeper.plan_command",
        "plan_command",
        "Simulate how a pool of replicas would serve recorded traffic; engine speed is estimated from measurements.",
    ),
    LazyCommand(
        "forecast",
        "tollkeeper.forecast_command",
        "forecast_command",
        "Forecast spending by tenant and for the month, with prediction intervals.",
    ),
    LazyCommand(
        "anomalies",
        "tollkeeper.forecast_command",
        "anomalies_command",
        "List tenants with unusual spending on a day, by cause: volume, model mix, cache or price.",
    ),
    LazyCommand(
        "savings",
        "tollkeeper.forecast_command",
        "savings_command",
        "Recommend savings, largest first, with the evidence.",
    ),
    LazyCommand(
        "backup",
        "tollkeeper.backup",
        "backup_command",
        "Copy the control database and the store into a directory while everything runs.",
    ),
    LazyCommand(
        "restore",
        "tollkeeper.backup",
        "restore_command",
        "Fill an empty control database and store from a backup. Status 2 if a checksum differs.",
    ),
    LazyCommand(
        "audit",
        "tollkeeper.audit",
        "app",
        "The audit log: verify it, export it, remove old segments, copy it to a sink.",
    ),
    LazyCommand(
        "secrets", "tollkeeper.secrets_command", "app", "Providers' API keys, and the installation's own secrets."
    ),
    LazyCommand("rows", "tollkeeper.rows_command", "app", "Rows of the control database that cannot be read."),
    LazyCommand("accounts", "tollkeeper.accounts", "app", "People who sign in to the dashboard."),
    LazyCommand(
        "gate",
        "tollkeeper.gate.command",
        "gate_command",
        "Compare two models on the same prompts. Status 1 if the candidate is worse.",
    ),
    LazyCommand("alerts", "tollkeeper.alerts", "app", "Alerts, notifications and silences."),
    LazyCommand(
        "abuse", "tollkeeper.abuse", "app", "Abuse incidents: floods, probing, harvesting of answers, shared keys."
    ),
    LazyCommand(
        "books",
        "tollkeeper.books",
        "app",
        "Corrections of recorded cost, closed months, issued invoices and credit notes.",
    ),
    LazyCommand(
        "reconcile",
        "tollkeeper.reconcile",
        "app",
        "Compare providers' bills with recorded usage, and show the cause of each difference.",
    ),
    LazyCommand("cost", "tollkeeper.cost", "app", "Costs: reports, shared costs, exports, invoices."),
    LazyCommand("gpu", "tollkeeper.gpu", "app", "GPU time: ledger, cost, standard cost cards."),
    LazyCommand("spool", "tollkeeper.spool", "app", "The collector's spool: records on disk, not yet in the store."),
    LazyCommand(
        "request",
        "tollkeeper.request",
        "app",
        "Find requests, and show a request's time by stage and its cost by usage kind.",
    ),
    LazyCommand(
        "store", "tollkeeper.store_command", "app", "The telemetry store: check it, repair its rollups, move it."
    ),
    LazyCommand(
        "retention", "tollkeeper.retention", "app", "How long rows of each table are kept before they are deleted."
    ),
    LazyCommand("users", "tollkeeper.privacy", "users", "End users, as applications name them."),
    LazyCommand(
        "apply",
        "tollkeeper.configuration.commands",
        "apply_command",
        "Create, change and (with --prune) remove objects as YAML files describe.",
        is_usage_one=True,
    ),
    LazyCommand(
        "diff",
        "tollkeeper.configuration.commands",
        "diff_command",
        "Show what apply would change. Status 0: no changes, 2: changes, 1: an error.",
        is_usage_one=True,
    ),
    LazyCommand(
        "export",
        "tollkeeper.configuration.commands",
        "export_command",
        "Write all objects as YAML for `apply` or for a gateway's configuration file.",
    ),
    LazyCommand(
        "schema",
        "tollkeeper.configuration.commands",
        "schema_command",
        "Write the JSON schema of the YAML files.",
    ),
    LazyCommand(
        "upstream",
        "tollkeeper.upstream",
        "app",
        "Servers and providers that answer requests: added with a model and its price.",
    ),
    LazyCommand("import", "tollkeeper.litellm_import", "app", "Import the configuration of another gateway."),
    *_resource_commands(),
)


def add_lazily(app: typer.Typer, commands: Iterable[LazyCommand]) -> None:
    """Add commands to an application without importing them. Its class must be LazyGroup."""
    for command in commands:
        brief = first_sentence(command.help)
        app.command(command.name, help=command.help, short_help=brief, hidden=command.is_hidden)(_stand_in(command))


def _stand_in(command: LazyCommand) -> Callable[[], None]:
    def run() -> None:
        raise AssertionError("a lazy command is loaded before it runs")

    run.lazy = command  # type: ignore[attr-defined]
    return run
