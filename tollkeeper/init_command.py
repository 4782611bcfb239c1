"""`tollkeeper init`: ask five questions, write a configuration file, start the installation."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from backends.control.bootstrap import BUILTIN_MODEL
from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError
from contracts.rules.alert_channels import kind_of_address
from tollkeeper.accounts import made_up_password
from tollkeeper.configuration.commands import send_configuration
from tollkeeper.configuration.files import read_configuration
from tollkeeper.control_client import ControlClient
from tollkeeper.first_setup import Answers, checked, stored_key, write_files
from tollkeeper.gateway_client import first_model
from tollkeeper.installation import Installation
from tollkeeper.options import DEFAULT_DATA, Dashboard, Data, Engine, PortBase
from tollkeeper.own_gateway import gateway_certificate
from tollkeeper.plan import LOOPBACK, Choices
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors

_FILE: Final = Path("tollkeeper.yaml")
_KEY_POLLS: Final = 50
_POLL_SECONDS: Final = 0.2


def init_command(
    upstream: Annotated[
        str | None,
        typer.Option(help="URL of an OpenAI-compatible API, or a model directory (default: the built-in model)."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Model name that applications ask for; required if --upstream is a URL.")
    ] = "",
    upstream_model: Annotated[str, typer.Option(help="The model's name at the upstream (default: the same).")] = "",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Variable that holds the upstream's API key; it is stored encrypted.")
    ] = "",
    price: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="INPUT OUTPUT", help="USD per million tokens (default: from the built-in price list)."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Id of the tenant to create.")] = "main",
    key: Annotated[str | None, typer.Option(help="Name of the first key (default app).")] = None,
    budget_usd: Annotated[
        str | None, typer.Option("--budget-usd", help="Hard budget for each month in USD (default: none).")
    ] = None,
    alert: Annotated[
        str | None,
        typer.Option(
            help="Where alerts go: e-mail address, URL of a Slack, Teams, Google Chat or other webhook, or PagerDuty's "
            "routing key (default: nowhere)."
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            help="E-mail address of the first dashboard account (default: none; only this machine has access)."
        ),
    ] = None,
    file: Annotated[Path, typer.Option("--file", "-f", help="Configuration file to write.")] = _FILE,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing; use defaults for options that are not given.")
    ] = False,
    starts: Annotated[
        bool, typer.Option("--start/--no-start", help="Start everything, or only write the file.")
    ] = True,
    data: Data = DEFAULT_DATA,
    port_base: PortBase = None,
    dashboard: Dashboard = True,
    engine: Engine = True,
) -> None:
    """Set up an installation: ask five questions, write a file for `tollkeeper apply`, start everything."""
    with one_line_errors():
        if file.exists():
            raise ConfigurationError(
                f"{file} exists already; apply it with `tollkeeper apply -f {file}`, or name another with --file"
            )
        if starts and Installation(data).is_supervised():
            raise ConfigurationError(
                f"`tollkeeper up` runs on {data}: stop it first, or choose another directory with --data"
            )
        given = Answers(
            upstream or "", model, upstream_model, api_key_env, price, tenant, key or "app", budget_usd or "",
            alert or "", account or "",
        )  # fmt: skip
        stated = {"upstream": upstream, "key": key, "budget_usd": budget_usd, "alert": alert, "account": account}
        answers = checked(given if yes else _asked(given, stated))
        write_files(answers, file, data)
        typer.echo(f"{file} written.")
        if not starts:
            typer.echo(f"Next: `tollkeeper up`, then `tollkeeper apply -f {file}`.")
            return
        from tollkeeper.up import up  # imported here: it loads slowly, and --no-start does not need it

        ports = Ports.from_environment(os.environ) if port_base is None else Ports.from_base(port_base)
        choices = Choices(
            data,
            ports,
            has_dashboard=dashboard,
            has_engine=engine,
            model=answers.directory,
            certificate=gateway_certificate(),
            host=LOOPBACK,
        )
        status = up(choices, os.environ, Console(), FirstStart(answers, file, data, Console()))
    raise typer.Exit(status)


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Applies the file when everything runs, and prints the key with an example."""

    answers: Answers
    file: Path
    data: Path
    console: Console

    async def __call__(self, addresses: Mapping[str, str]) -> None:
        """Apply the file. Raises ConfigurationError, which stops the start, if the file is invalid."""
        lines, key = await asyncio.to_thread(set_up, self.answers, self.file, self.data, addresses["gateway"])
        # The gateway reads a new key within a second: wait, so that the printed example works.
        for _ in range(_KEY_POLLS if key else 0):
            if await first_model(addresses["gateway"], key) is not None:
                break
            await asyncio.sleep(_POLL_SECONDS)
        for line in lines:
            self.console.print(Text(line), soft_wrap=True)
        if self.answers.account and "dashboard" in addresses:
            self.console.print(Text(f"Sign in: {addresses['dashboard']}"), soft_wrap=True)


def set_up(answers: Answers, file: Path, data: Path, gateway: str) -> tuple[list[str], str]:
    """Store the upstream's key, apply the file and create the account; return lines to print, and the new API key.

    Raises ConfigurationError.
    """
    with ControlClient.of_installation(data, "") as client:
        for name, value in stored_key(answers).items():
            client.put(f"/v1/stored-keys/{path_segment(name)}", {"value": value})
    plan = send_configuration(read_configuration([file]), False, False, data, "")
    lines = [f"{file} applied: {_made(plan)}."]
    key = next((str(one["secret"]) for one in plan["issued"]), "")
    model = answers.model or BUILTIN_MODEL
    if key:
        lines += [
            "",
            f"Key {answers.key!r} of tenant {answers.tenant}, shown this once. In another terminal:",
            f"export OPENAI_BASE_URL={gateway}/v1",
            f"export OPENAI_API_KEY={key}",
            'curl -s $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \\',
            f'  -H "Content-Type: application/json" -d \'{{"model": "{model}", "messages": '
            '[{"role": "user", "content": "Hello"}]}\'',
        ]
    if answers.account:
        password = made_up_password()
        body: dict[str, Any] = {"email": answers.account, "name": answers.account, "role": "owner"}
        with ControlClient.of_installation(data, "") as client:
            client.post("/v1/accounts", {**body, "password": password})
        lines += ["", f"Account {answers.account}, password shown this once: {password}"]
    if answers.alert:
        lines += ["", "Test the alert channel: tollkeeper alerts test alerts"]
        if kind_of_address(answers.alert) == "email" and not os.environ.get("TOLLKEEPER_ALERTS_SMTP_HOST"):
            lines.append("Mail needs a server: set TOLLKEEPER_ALERTS_SMTP_HOST and start again.")
    if answers.directory:
        lines += ["", f"The next start needs the model again: tollkeeper up --model {answers.directory}"]
    return lines, key


def _made(plan: Mapping[str, Any]) -> str:
    return ", ".join(f"{step['noun']} {step['name']}" for step in plan["steps"]) or "nothing to change"


def _asked(given: Answers, stated: Mapping[str, object]) -> Answers:
    """Ask for the answers that options did not give. Raises typer.Abort if the input ends."""
    found: dict[str, Any] = {name: getattr(given, name) for name in Answers.__dataclass_fields__}

    def ask(number: int, name: str, question: str, default: str = "") -> None:
        if stated[name] is None:
            typer.echo(f"\n{number} of 5. {question}", err=True)
            found[name] = typer.prompt("  ", default=default, show_default=bool(default), err=True).strip()

    ask(1, "upstream", "What answers requests? URL of an OpenAI-compatible API, or directory of a Hugging Face model "
        "(empty: the built-in model).")  # fmt: skip
    if found["upstream"].startswith(("http://", "https://")):
        if not found["model"]:
            found["model"] = typer.prompt("   Model, as applications ask for it", err=True).strip()
        if not found["api_key_variable"]:
            question = "   Environment variable that holds its API key (empty: it needs none)"
            found["api_key_variable"] = typer.prompt(question, default="", show_default=False, err=True).strip()
    ask(2, "key", "Name of the first application's key.", "app")
    ask(3, "budget_usd", "Hard budget for each month in USD, such as 50 (empty: none).")
    ask(4, "alert", "Where do alerts go? E-mail address, URL of a webhook (Slack, Teams, Google Chat), or PagerDuty "
        "routing key (empty: nowhere).")  # fmt: skip
    ask(5, "account", "Who signs in to the dashboard? E-mail address of the first account (empty: only this machine).")
    return Answers(**found)
