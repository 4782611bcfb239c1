"""Declarations of kinds of objects: path, fields, verbs, columns and examples. Cheap to import: builds no command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Verb = Literal["create", "list", "show", "set", "delete"]
FieldType = Literal["text", "whole", "number", "flag", "list", "wholes", "percents", "pairs", "json", "file", "secret"]
Row: TypeAlias = Mapping[str, Any]

VERBS: Final[tuple[Verb, ...]] = ("create", "list", "show", "set", "delete")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the HTTP body as an option. `name` may be dotted: `thresholds_ms.ttft`.

    Types: `whole` is a whole number; `flag` is --x/--no-x; `list` is repeated; `wholes` and `percents` are repeated
    whole numbers; `pairs` is repeated NAME=VALUE; `json` is YAML or JSON text, or @FILE; `file` is a YAML or JSON file
    as an argument; `secret` is asked for if it is not given.
    """

    name: str
    help: str
    type: FieldType = "text"
    flag: str = ""  # "--policy", or "--hard/--soft"; made from the name if empty
    is_required: bool = False
    verbs: tuple[Verb, ...] = ("create", "set")
    choices: Sequence[str] = ()
    metavar: str = ""
    is_null_if_empty: bool = False  # "" stands for null

    @property
    def parameter(self) -> str:
        """Return the name of the parameter in Python."""
        return self.name.replace(".", "__")

    @property
    def option(self) -> str:
        """Return the option as it is written."""
        plain = "--" + self.name.rpartition(".")[2].replace("_", "-")
        if self.type == "flag" and not self.flag:
            return f"{plain}/--no-{plain[2:]}"
        return self.flag or plain


@dataclass(frozen=True, slots=True)
class Parent:
    """What an object belongs to: an option, and a part of the path."""

    name: str  # in the path
    noun: str
    list_path: str  # where the parents are listed, if the option is left out


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of objects."""

    heading: str
    show: Callable[[Row], str]


def of(name: str, heading: str = "") -> Column:
    """Return a column that shows a field."""
    return Column(heading or name.removesuffix("_id"), lambda row: shown(row.get(name)))


def moment(name: str = "created_at", heading: str = "created") -> Column:
    """Return a column that shows a moment, to the second, in UTC."""
    return Column(heading, lambda row: str(row.get(name) or "")[:19].replace("T", " "))


def active(name: str = "is_active") -> Column:
    """Return a column that shows whether an object is active."""
    return Column("status", lambda row: "active" if row[name] else "inactive")


def shown(value: object) -> str:
    """Return a value in a cell."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={shown(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object. The command group is named `name`; sentences speak of a `noun`."""

    name: str
    noun: str
    about: str
    path: str  # of the list: "/v1/pools/{pool}/targets"
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    examples: tuple[str, ...]
    key: str = "id"  # the field that identifies one, and the argument
    key_help: str = "Id: a-z, 0-9 and -; cannot be changed."
    is_key_given: bool = True  # False: the control plane makes the id
    parents: tuple[Parent, ...] = ()
    verbs: tuple[Verb, ...] = VERBS
    help: Mapping[Verb, str] = field(default_factory=dict)  # instead of the usual sentence
    described: Callable[[Row], str] = lambda row: ""  # what follows "created: "
    body: Callable[[dict[str, Any], Row | None], dict[str, Any]] = lambda body, stored: body
    replaces: Callable[[Row], dict[str, Any]] | None = None  # set by PUT: the body that a stored row stands for
    is_upsert: bool = False  # `set` creates what is not there
    deleted: str = "deleted"
    post_key: str = ""  # the key's name in the body of `create`, if it is another
    hint: Callable[[Row], str] = lambda row: ""  # a further line after `create` and `set`
    next: str = ""  # a hint after `create`; {key} and the parents' names are filled in
    has_show: bool = True  # False: the control plane has no path for one
    secret: str = ""  # the field of a reply that is printed alone on stdout
    aliases: tuple[str, ...] = ()  # older names of the group
    set_name: str = "set"  # another name of `set`, which stays as a hidden one
    module: str = ""  # where the group has more commands: "tollkeeper.keys"
    positional_parent: bool = False  # the first parent may be an argument of create and list, as it once was

    @property
    def argument(self) -> str:
        """Return the name of the argument in help."""
        return self.key.upper()

    @property
    def settable(self) -> tuple[Field, ...]:
        """Return the fields that `set` takes."""
        return tuple(one for one in self.fields if "set" in one.verbs)
