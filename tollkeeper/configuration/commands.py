"""`tollkeeper apply`, `diff`, `export` and `schema`."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from rich.console import Console
from rich.text import Text

from contracts.errors import ConfigurationError
from contracts.suggestions import did_you_mean
from tollkeeper.configuration.files import Configuration, read_configuration
from tollkeeper.control_client import ControlClient, ControlPlaneRefused
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json

_PATH: Final = "/v1/configuration"
_FAILED: Final = 1
_PENDING: Final = 2
_SIGNS: Final = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}
_DONE: Final = {"create": "created", "change": "changed", "delete": "removed"}
_WIDTH: Final = 100
_PATIENCE_SECONDS: Final = 300.0  # timeout of the response: thousands of objects are one transaction
_MAX_OBJECTS: Final = 5_000  # limit of the control plane
_MAX_VALUE: Final = 60

Files = Annotated[
    list[Path],
    typer.Option(
        "--file", "-f", metavar="FILE|DIR", help="YAML file, directory of YAML files, or - for stdin; repeat for more."
    ),
]
Prune = Annotated[
    bool,
    typer.Option("--prune", help="Remove objects that are not in the files, in the sections that the files have."),
]


def apply_command(
    files: Files,
    prune: Prune = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and change nothing; status 2 if there are changes.")
    ] = False,
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="Write the secrets of new keys to this file (mode 0600), as JSON.")
    ] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create, change and (with --prune) remove objects as YAML files describe.

    All or nothing: one bad object changes nothing. Status 0: applied or nothing to do; 1: an error.
    """
    with one_line_errors(_FAILED):
        if secrets is not None and secrets.exists():
            raise ConfigurationError(f"{secrets} exists already; name a new file with --secrets")
        wanted = read_configuration(files)
        plan = send_configuration(wanted, prune, dry_run, data, control_url)
        if secrets is not None and plan["issued"]:
            descriptor = os.open(secrets, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(plan["issued"], file, indent=2)
    if as_json:
        print_json(plan if secrets is None else {**plan, "issued": []})
    else:
        _print_plan(wanted, plan)
        if secrets is None:
            _print_issued(plan["issued"])
    if dry_run and plan["steps"]:
        raise typer.Exit(_PENDING)


def diff_command(
    files: Files, prune: Prune = False, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Show what apply would change. Status 0: no changes, 2: changes, 1: an error."""
    with one_line_errors(_FAILED):
        wanted = read_configuration(files)
        plan = send_configuration(wanted, prune, True, data, control_url)
    if as_json:
        print_json(plan)
    else:
        _print_plan(wanted, plan)
    if plan["steps"]:
        raise typer.Exit(_PENDING)


def export_command(
    sections: Annotated[
        list[str] | None, typer.Option("--section", help="Only this section, such as models; repeat for more.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: stdout).")] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write all objects as YAML for `apply` or for a gateway's configuration file.

    Secrets are not included: add `key: env:NAME` to keys before a gateway runs from the file alone.
    """
    with one_line_errors(_FAILED):
        with ControlClient.of_installation(data, control_url) as client:
            document: dict[str, Any] = client.get(_PATH)["sections"]
        known = _sections()
        for name in sections or []:
            if name not in known:
                raise ConfigurationError(f"there is no section {name!r}{did_you_mean(name, known)}")
        shown = {name: entries for name, entries in document.items() if not sections or name in sections}
        text = json.dumps(shown, indent=2) + "\n" if as_json else _yaml(shown)
        _write(text, output)


def schema_command(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: stdout).")] = None,
) -> None:
    """Write the JSON schema of the YAML files."""
    from gateway.control.configuration.table import document_schema  # imported here: it takes seconds

    with one_line_errors(_FAILED):
        _write(json.dumps(document_schema(), indent=2) + "\n", output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written ({error.strerror})") from error


def _sections() -> list[str]:
    from gateway.control.configuration.table import BY_SECTION  # imported here: it takes seconds

    return list(BY_SECTION)


def send_configuration(
    wanted: Configuration, prune: bool, dry_run: bool, data: Path, control_url: str
) -> dict[str, Any]:
    """Plan and, unless it is a dry run, apply a configuration. Raises ConfigurationError with file and line."""
    if len(wanted.objects) > _MAX_OBJECTS:
        raise ConfigurationError(
            f"the files have {len(wanted.objects):,} objects, and at most {_MAX_OBJECTS:,} are applied at once; apply "
            "them in parts, such as a section at a time"
        )
    body = {
        "objects": [{"section": one.section, "entry": one.entry} for one in wanted.objects],
        "prune": wanted.sections if prune else [],
        "dry_run": dry_run,
    }
    with ControlClient.of_installation(data, control_url) as client:
        try:
            return client.post(_PATH, body, _PATIENCE_SECONDS)
        except ControlPlaneRefused as error:
            raise _placed(wanted, error) from error


def _placed(wanted: Configuration, error: ControlPlaneRefused) -> ConfigurationError:
    """Return the control plane's refusal with the file and line of the object, which it names by its number."""
    parts = (error.param or "").split(".")
    if parts[0] == "body":
        return ConfigurationError(f"{error.reason}; apply the configuration in parts, such as a section at a time")
    if parts[0] != "objects" or len(parts) < 2 or not parts[1].isdecimal():
        return ConfigurationError(error.message)
    placed = wanted.objects[int(parts[1])]
    place = [int(part) if part.isdecimal() else part for part in parts[3:]] if parts[2:3] == ["entry"] else []
    return placed.error(place, error.reason)


def _print_plan(wanted: Configuration, plan: Mapping[str, Any]) -> None:
    console = Console(highlight=False)
    steps: Sequence[Mapping[str, Any]] = plan["steps"]
    for step in steps:
        sign, style = _SIGNS[step["action"]]
        where = "" if step["object"] is None else f"  ({wanted.objects[step['object']].where})"
        console.print(
            Text(f"{sign} {step['noun']} {step['name']}", style=style) + Text(where, style="dim"), soft_wrap=True
        )
        for change in step["changes"] if step["action"] != "delete" else []:
            before, after = _value(change["before"]), _value(change["after"])
            said = f"{after}" if step["action"] == "create" else f"{before} -> {after}"
            console.print(Text(f"    {change['field']}: {said}"), soft_wrap=True)
    counts = {action: sum(step["action"] == action for step in steps) for action in _SIGNS}
    if not steps:
        typer.echo("Nothing to change.")
    elif plan["applied"]:
        typer.echo("Applied: " + ", ".join(f"{number} {_DONE[action]}" for action, number in counts.items()) + ".")
    else:
        typer.echo("Plan: " + ", ".join(f"{number} to be {_DONE[action]}" for action, number in counts.items()) + ".")


def _print_issued(issued: Sequence[Mapping[str, str]]) -> None:
    if issued:
        typer.echo("New keys, shown this once:")
    for key in issued:
        typer.echo(f"  {key['secret']}  {key['name']} of tenant {key['tenant']} ({key['id']})")


def _value(value: object) -> str:
    if value is None:
        return "(default)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _yaml(document: Mapping[str, Any]) -> str:
    parts = [
        yaml.safe_dump({section: entries}, sort_keys=False, allow_unicode=True, width=_WIDTH, indent=2)
        for section, entries in document.items()
    ]
    return "\n".join(parts)
