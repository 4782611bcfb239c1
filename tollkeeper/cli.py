"""The command line. Commands parse options, call the code that does the work, and print; they contain no logic."""

from importlib.metadata import version as installed_version

import typer

from tollkeeper.commands import COMMANDS, LazyGroup, add_lazily
from tollkeeper.plain_help import MAX_WIDTH

app = typer.Typer(
    name="tollkeeper",
    cls=LazyGroup,
    help="LLM gateway: routing, limits, budgets and one billing record per request.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"max_content_width": MAX_WIDTH},
    pretty_exceptions_enable=False,  # tracebacks with local variables would show keys
)
add_lazily(app, COMMANDS)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("tollkeeper"))
