"""Builds the command group of a resource (create, list, show, set, delete) from its declaration."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from backends.http_client.control_plane import path_segment
from backends.yaml_document import YamlDocument
from contracts.errors import ConfigurationError
from contracts.suggestions import did_you_mean
from tollkeeper.commands import LazyGroup
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.plain_help import examples_text
from tollkeeper.printing import one_line_errors, print_json, print_record, print_table
from tollkeeper.resources.resource import Field, Resource, Row, Verb, shown
from tollkeeper.resources.table import BY_NAME

_USUAL: Final[Mapping[Verb, str]] = {
    "create": "Create {a} {noun}.",
    "list": "List {plural}.",
    "show": "Show {a} {noun}.",
    "set": "Change {a} {noun}. Options that are not given stay unchanged.",
    "delete": "Delete {a} {noun}.",
}
_KEY_SECRET: Final = "tk-"
_MAX_WHOLE: Final = 40


def __getattr__(name: str) -> typer.Typer:
    """Return the command group of a resource, by its name with underscores."""
    resource = BY_NAME.get(name.replace("_", "-"))
    if resource is None:
        raise AttributeError(name)
    return group_of(resource.name)


def group_of(name: str, without: tuple[Verb, ...] = ()) -> typer.Typer:
    """Return a new command group of a resource; `without`: verbs that its own module defines."""
    resource = BY_NAME[name]
    app = typer.Typer(cls=LazyGroup, help=resource.about, no_args_is_help=True)
    for verb in resource.verbs:
        if verb not in without:
            function = _COMMANDS[verb](resource)
            said, examples = help_of(resource, verb), examples_of(resource, verb)
            name = resource.set_name if verb == "set" else verb
            app.command(name, help=said, epilog=examples)(function)
            if name != verb:
                app.command(verb, help=said, epilog=examples, hidden=True)(function)  # an older name
    return app


def help_of(resource: Resource, verb: Verb) -> str:
    """Return the help text of a resource's verb."""
    article = "an" if resource.noun.startswith(("a", "e", "i", "o", "MCP")) else "a"
    words = {"a": article, "noun": resource.noun, "plural": plural_of(resource)}
    return resource.help.get(verb, _USUAL[verb].format(**words))


def plural_of(resource: Resource) -> str:
    """Return the plural of a resource's noun."""
    return "policies" if resource.noun == "policy" else f"{resource.noun}s"


def examples_of(resource: Resource, verb: Verb) -> str | None:
    """Return the examples of a verb as the help's epilog; `None` if there are none."""
    begins = f"tollkeeper {resource.name} {resource.set_name if verb == 'set' else verb}"
    lines = [line for line in resource.examples if line.startswith(begins)]
    return examples_text(lines) if lines else None


# The commands.


def _create(resource: Resource) -> Callable[..., None]:
    fields = tuple(one for one in resource.fields if "create" in one.verbs)

    def run(data: Path, control_url: str, as_json: bool, **given: Any) -> None:
        with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
            parents = _parents_of(resource, given)
            missing = [parent.name for parent in resource.parents if parent.name not in parents]
            if missing:
                raise ConfigurationError(f"give --{missing[0]}, the {missing[0]} that the {resource.noun} belongs to")
            body = _body(fields, given)
            if resource.is_key_given:
                body[resource.post_key or resource.key] = given["key"]
            made = client.post(resource.path.format(**_quoted(parents)), resource.body(body, None))
        _print_made(resource, made, parents, "created", as_json)

    return _signed(
        run,
        [*_key(resource), *_positional(resource), *_files(fields)],
        [
            *_parent_options(resource, "it belongs to"),
            *map(_option, (one for one in fields if one.type != "file")),
        ],
    )


def _list(resource: Resource) -> Callable[..., None]:
    def run(data: Path, control_url: str, as_json: bool, **given: Any) -> None:
        with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
            rows = [
                row
                for parents in _expanded(client, resource, _parents_of(resource, given))
                for row in _rows(client, resource, parents)
            ]
        if as_json:
            print_json(rows)
            return
        headings = tuple(column.heading for column in resource.columns)
        cells = {column.heading: column.show for column in resource.columns}
        print_table(headings, rows, lambda row, heading: cells[heading](row), _empty(resource, given))

    return _signed(run, _positional(resource), _parent_options(resource, "to list (default: all)"))


def _show(resource: Resource) -> Callable[..., None]:
    def run(key: str, data: Path, control_url: str, as_json: bool, **given: Any) -> None:
        with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
            found = read_object(client, resource, key, _parents_of(resource, given))
        if as_json:
            print_json(found)
        else:
            print_record({name: in_record(value) for name, value in found.items()})

    return _signed(
        run, _key(resource, is_made=True), _parent_options(resource, "it belongs to (default: found by the id)")
    )


def _set(resource: Resource) -> Callable[..., None]:
    fields = resource.settable

    def run(
        key: str, data: Path, control_url: str, as_json: bool, clear: list[str] | None = None, **given: Any
    ) -> None:
        with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
            body = _body(fields, given)
            for name in clear or []:
                _clear(resource, name, body)
            if not body:
                raise _nothing_to_change(resource)
            parents = _parents_of(resource, given)
            if resource.is_upsert and not any(row[resource.key] == key for row in _rows(client, resource, parents)):
                made = client.post(
                    resource.path.format(**_quoted(parents)), {resource.post_key or resource.key: key, **body}
                )
                _print_made(resource, made, parents, "created", as_json)
                return
            path, parents = located(client, resource, key, parents)
            changed = _change(client, resource, path, body)
        _print_made(resource, changed, parents, "set", as_json)

    options = [_option(one) for one in fields if one.type != "file"]
    if any(one.is_clearable for one in fields):
        options.append(("clear", list[str] | None, None, typer.Option("--clear", metavar="FIELD", help=_CLEAR_HELP)))
    parents = _parent_options(resource, "it belongs to (default: found by the id)")
    return _signed(run, [*_key(resource, is_made=True), *_files(fields)], [*options, *parents])


_CLEAR_HELP: Final = "Reset FIELD, an option of this command without its dashes, to its default; repeat for more."


def _delete(resource: Resource) -> Callable[..., None]:
    def run(key: str, data: Path, control_url: str, as_json: bool, **given: Any) -> None:
        with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
            path, _ = located(client, resource, key, _parents_of(resource, given))
            gone = client.delete(path)
        if as_json:
            print_json(gone)
        else:
            typer.echo(f"{resource.noun} {gone.get(resource.key, key)} {resource.deleted}")

    return _signed(
        run, _key(resource, is_made=True), _parent_options(resource, "it belongs to (default: found by the id)")
    )


_COMMANDS: Final[Mapping[Verb, Callable[[Resource], Callable[..., None]]]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "set": _set,
    "delete": _delete,
}


# Their parameters.

_Parameter = tuple[str, Any, Any, Any]  # name, type, default, Typer's annotation


def _signed(run: Callable[..., None], arguments: list[_Parameter], options: list[_Parameter]) -> Callable[..., None]:
    """Return a function with the signature that Typer reads."""

    def command(**given: Any) -> None:
        run(**given)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])
        for name, kind, default, told in (*arguments, *options)
    ]
    shared = (("data", Data, DEFAULT_DATA), ("control_url", ControlUrl, ""), ("as_json", AsJson, False))
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in shared
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _key(resource: Resource, *, is_made: bool = False) -> list[_Parameter]:
    if not is_made and not resource.is_key_given:
        return []
    said = f"The {resource.noun}'s {resource.key}." if is_made else resource.key_help
    return [("key", str, inspect.Parameter.empty, typer.Argument(metavar=resource.argument, help=said))]


def _positional(resource: Resource) -> list[_Parameter]:
    if not resource.positional_parent:
        return []
    parent = resource.parents[0]
    told = typer.Argument(metavar=f"[{parent.name.upper()}]", help=f"The {parent.noun}; same as --{parent.name}.")
    return [(f"{parent.name}_argument", str, "", told)]


def _parent_options(resource: Resource, said: str) -> list[_Parameter]:
    return [
        (parent.name, str, "", typer.Option(f"--{parent.name}", help=f"The {parent.noun} {said}."))
        for parent in resource.parents
    ]


def _files(fields: tuple[Field, ...]) -> list[_Parameter]:
    return [
        (one.parameter, Path, inspect.Parameter.empty, typer.Argument(metavar="FILE", help=one.help))
        if one.is_required
        else (one.parameter, Path | None, None, typer.Argument(metavar="[FILE]", help=one.help))
        for one in fields
        if one.type == "file"
    ]


def _option(one: Field) -> _Parameter:
    kinds: dict[str, Any] = {"flag": bool | None, "number": float | None}
    kinds |= dict.fromkeys(("list", "wholes", "percents", "pairs"), list[str] | None)
    kind = kinds.get(one.type, str | None)
    said = f"{one.help} One of: {', '.join(one.choices)}." if one.choices else one.help
    more: dict[str, Any] = {"metavar": one.metavar} if one.metavar else {}
    if one.choices:
        choices = tuple(one.choices)
        more["autocompletion"] = lambda incomplete: [word for word in choices if word.startswith(incomplete)]
    if one.type == "secret":
        more |= {"prompt": True, "hide_input": True}
    default: Any = inspect.Parameter.empty if one.is_required else None
    if one.is_required:
        lists = ("list", "wholes", "percents", "pairs")
        kind = list[str] if one.type in lists else {"flag": bool, "number": float}.get(one.type, str)
    return (one.parameter, kind, default, typer.Option(*one.option.split(), help=said, **more))


# Their implementation.


def _body(fields: tuple[Field, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for one in fields:
        value = given.get(one.parameter)
        if value is None or (one.type in ("list", "wholes", "percents", "pairs") and not value):
            continue
        _put(body, one.name.split("."), _value(one, value))
    return body


def _put(body: dict[str, Any], place: list[str], value: object) -> None:
    *outer, last = place
    for name in outer:
        body = body.setdefault(name, {})
    if isinstance(value, dict) and isinstance(body.get(last), dict):
        body[last].update(value)
    else:
        body[last] = value


def _value(one: Field, given: Any) -> Any:
    if one.is_null_if_empty and given == "":
        return None
    match one.type:
        case "whole":
            return whole_number(given)
        case "wholes":
            return [whole_number(each) for each in given]
        case "percents":
            return [whole_number(each.removesuffix("%")) for each in given]
        case "pairs":
            return dict(_pair(one, each) for each in given)
        case "json":
            return _data(given, one.option)
        case "file":
            data = read_data(given)
            if not isinstance(data, dict):
                raise ConfigurationError(f"{given} must hold fields with values. {one.help}")
            return {name: value for name, value in data.items() if name not in ("name", "id")}
        case _:
            return given


def whole_number(text: str) -> int | str:
    """Parse a whole number; return any other text unchanged, so that the control plane's refusal names it."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < _MAX_WHOLE else text


def _pair(one: Field, text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name:
        raise ConfigurationError(f"{one.option} {text!r} is not NAME=VALUE")
    return name, value


def _data(text: str, option: str) -> Any:
    if text.startswith("@"):
        return read_data(Path(text[1:]))
    try:
        return plain_data(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{option} is neither YAML nor JSON: {text[:60]!r}") from error


def read_data(file: Path) -> Any:
    """Read a YAML or JSON file as plain data. Raises ConfigurationError with the line, also for a repeated field."""
    return plain_data(YamlDocument.read(file).content)


def plain_data(value: object) -> Any:
    """Convert YAML values to JSON types; dates become text. Raises ConfigurationError if that is not possible."""
    try:
        return json.loads(json.dumps(value, default=lambda other: other.isoformat(), allow_nan=False))
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            "a value is not plain data; use text, finite numbers, lists and fields with values"
        ) from error


def _parents_of(resource: Resource, given: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for parent in resource.parents:
        option, argument = given.get(parent.name), given.get(f"{parent.name}_argument")
        if option and argument and option != argument:
            raise ConfigurationError(
                f"the {parent.noun} is given twice, as {argument!r} and as --{parent.name} {option!r}; leave one out"
            )
        value = option or argument
        if value:
            found[parent.name] = value
    return found


def _quoted(parents: Mapping[str, str]) -> dict[str, str]:
    return {name: path_segment(value) for name, value in parents.items()}


def _expanded(client: ControlClient, resource: Resource, parents: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield combinations of parents: the given ones, and all existing ones for those not given."""
    missing = next((parent for parent in resource.parents if parent.name not in parents), None)
    if missing is None:
        yield parents
        return
    for row in client.get_all(missing.list_path.format(**_quoted(parents))):
        yield from _expanded(client, resource, {**parents, missing.name: row["id"]})


def _rows(client: ControlClient, resource: Resource, parents: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = client.get_all(resource.path.format(**_quoted(parents)), resource.key)
    # Add the parents' ids, which some objects (targets) do not have.
    return [{**{f"{name}_id": value for name, value in parents.items()}, **row} for row in rows]


def located(client: ControlClient, resource: Resource, key: str, parents: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return an object's path and parents; parents that were not given are searched. Raises ConfigurationError."""
    if key.startswith(_KEY_SECRET):
        # If sent, the secret would be in a URL, and in logs of URLs.
        raise ConfigurationError("that is a key's secret, not its id; `tollkeeper keys list` shows the ids")
    if len(parents) == len(resource.parents):
        return f"{resource.path.format(**_quoted(parents))}/{path_segment(key)}", parents
    known: list[str] = []
    found = []
    for each in _expanded(client, resource, parents):
        for row in _rows(client, resource, each):
            known.append(str(row[resource.key]))
            if row[resource.key] == key:
                found.append(each)
    if not found:
        near = did_you_mean(key, known)
        raise ConfigurationError(
            f"there is no {resource.noun} {key!r}{near or f'; `tollkeeper {resource.name} list` shows the ids'}"
        )
    if len(found) > 1:
        options = " ".join(f"--{parent.name}" for parent in resource.parents)
        raise ConfigurationError(f"there are {len(found)} {plural_of(resource)} {key!r}; name one with {options}")
    return f"{resource.path.format(**_quoted(found[0]))}/{path_segment(key)}", found[0]


def read_object(client: ControlClient, resource: Resource, key: str, parents: dict[str, str]) -> dict[str, Any]:
    """Return an object. Raises ConfigurationError if it does not exist."""
    path, found = located(client, resource, key, parents)
    if resource.has_show:
        return client.get(path)
    rows = _rows(client, resource, found)
    row = next((row for row in rows if row[resource.key] == key), None)
    if row is None:
        near = did_you_mean(key, (str(row[resource.key]) for row in rows))
        raise ConfigurationError(f"there is no {resource.noun} {key!r}{near}")
    return row


def change_object(
    client: ControlClient, resource: Resource, key: str, parents: dict[str, str], body: dict[str, Any]
) -> dict[str, Any]:
    """Change an object and return it. Raises ConfigurationError if `body` is empty or the object does not exist."""
    if not body:
        raise _nothing_to_change(resource)
    path, _ = located(client, resource, key, parents)
    return _change(client, resource, path, body)


def _nothing_to_change(resource: Resource) -> ConfigurationError:
    names = [f"--{_flag_name(one)}" for one in resource.settable if one.type != "file"]
    return ConfigurationError(f"nothing to change was named; give one of {', '.join(names) or 'a file'}")


def _change(client: ControlClient, resource: Resource, path: str, body: dict[str, Any]) -> dict[str, Any]:
    if resource.replaces is None:
        stored = client.get(path) if resource.has_show and resource.body is not _UNCHANGED else None
        return client.patch(path, resource.body(body, stored))
    stored_body = resource.replaces(client.get(path))
    for name, value in body.items():
        _put(stored_body, [name], value)
    return client.put(path, stored_body)


_UNCHANGED: Final = Resource.__dataclass_fields__["body"].default


def _clear(resource: Resource, name: str, body: dict[str, Any]) -> None:
    wanted = name.removeprefix("--").replace("_", "-")
    clearable = [one for one in resource.settable if one.is_clearable]
    found = next((one for one in clearable if wanted in (_flag_name(one), one.name.replace("_", "-"))), None)
    if found is None:
        known = [_flag_name(one) for one in clearable]
        raise ConfigurationError(
            f"--clear {name!r} is not a field of a {resource.noun} that has a default{did_you_mean(wanted, known)}"
        )
    _put(body, found.name.split("."), None)


def _flag_name(one: Field) -> str:
    return one.option.split("/")[0].split()[0].removeprefix("--")


def _print_made(resource: Resource, made: Row, parents: Mapping[str, str], done: str, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    key = str(made[resource.key])
    if resource.secret and made.get(resource.secret):
        typer.echo(made[resource.secret])
        typer.echo(f"{resource.noun} {key} {done}; the line above is shown this once, keep it safe", err=True)
        return
    whose = "".join(f" of {name} {value}" for name, value in reversed(list(parents.items())))
    described = resource.described(made)
    typer.echo(f"{resource.noun} {key}{whose} {done}" + (f": {described}" if described else ""))
    if hint := resource.hint(made):
        typer.echo(hint)
    if done == "created" and resource.next:
        typer.echo("next: " + resource.next.format(key=key, **parents))


def _empty(resource: Resource, given: Mapping[str, Any]) -> str:
    example = next((line for line in resource.examples if f" {resource.name} create" in line or " set " in line), "")
    for parent, value in _parents_of(resource, given).items():
        example = example.replace(f"--{parent} acme", f"--{parent} {value}")
    return f"no {plural_of(resource)} yet; {example}" if example else f"no {plural_of(resource)}"


def in_record(value: object) -> str:
    """Return a value as text for a record; nested values as YAML."""
    if (
        isinstance(value, dict | list)
        and value
        and any(isinstance(each, dict | list) for each in (value.values() if isinstance(value, dict) else value))
    ):
        return "\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, indent=2).rstrip()
    return shown(value)
