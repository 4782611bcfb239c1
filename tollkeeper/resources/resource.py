"""The declaration of a kind of object: path, fields, verbs, columns and examples. Fast to import."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Verb = Literal["create", "list", "show", "set", "delete"]
FieldType = Literal["text", "whole", "number", "flag", "list", "wholes", "percents", "pairs", "json", "file", "secret"]
Row: TypeAlias = Mapping[str, Any]

VERBS: Final[tuple[Verb, ...]] = ("create", "list", "show", "set", "delete")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the request body as a command-line option. `name` may be dotted: `thresholds_ms.ttft`.

    Types: `whole`: whole number; `flag`: --x/--no-x; `list`: repeated; `wholes`, `percents`: repeated whole numbers;
    `pairs`: repeated NAME=VALUE; `json`: YAML or JSON text, or @FILE; `file`: a YAML or JSON file as argument;
    `secret`: prompted for if not given.
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
    is_stored: bool = True  # False: it says what a request shall do, and no object has it

    @property
    def parameter(self) -> str:
        """Return the name of the Python parameter."""
        return self.name.replace(".", "__")

    @property
    def is_clearable(self) -> bool:
        """Return whether `set` can reset the stored field to its default."""
        return self.is_stored and not self.is_required

    @property
    def option(self) -> str:
        """Return the option's name, such as "--policy" or "--hard/--soft"."""
        plain = "--" + self.name.rpartition(".")[2].replace("_", "-")
        if self.type == "flag" and not self.flag:
            return f"{plain}/--no-{plain[2:]}"
        return self.flag or plain


@dataclass(frozen=True, slots=True)
class Parent:
    """The object that a resource belongs to: an option, and a part of the path."""

    name: str  # of the placeholder in the path
    noun: str
    list_path: str  # path to list the parents, if the option is not given


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list."""

    heading: str
    show: Callable[[Row], str]


def of(name: str, heading: str = "") -> Column:
    """Return a column that shows a field."""
    return Column(heading or name.removesuffix("_id"), lambda row: shown(row.get(name)))


def moment(name: str = "created_at", heading: str = "created") -> Column:
    """Return a column that shows a time to the second, in UTC."""
    return Column(heading, lambda row: str(row.get(name) or "")[:19].replace("T", " "))


def active(name: str = "is_active") -> Column:
    """Return a column that shows whether an object is active."""
    return Column("status", lambda row: "active" if row[name] else "inactive")


def shown(value: object) -> str:
    """Return a value as text for a table cell."""
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
    """A kind of object. `name`: of the command group; `noun`: for sentences."""

    name: str
    noun: str
    about: str
    path: str  # of the collection: "/v1/pools/{pool}/targets"
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    examples: tuple[str, ...]
    key: str = "id"  # the field that identifies an object; also the argument
    key_help: str = "Id: a-z, 0-9 and -; cannot be changed."
    is_key_given: bool = True  # False: the control plane generates the id
    parents: tuple[Parent, ...] = ()
    verbs: tuple[Verb, ...] = VERBS
    help: Mapping[Verb, str] = field(default_factory=dict)  # replaces the default help, by verb
    described: Callable[[Row], str] = lambda row: ""  # text after "created: "
    body: Callable[[dict[str, Any], Row | None], dict[str, Any]] = lambda body, stored: body
    replaces: Callable[[Row], dict[str, Any]] | None = None  # for `set` by PUT: converts a stored row to a body
    is_upsert: bool = False  # `set` creates the object if it does not exist
    deleted: str = "deleted"
    post_key: str = ""  # name of the key in the body of `create`, if different
    hint: Callable[[Row], str] = lambda row: ""  # additional line after `create` and `set`
    next: str = ""  # next command after `create`; {key} and parents' names are replaced
    has_show: bool = True  # False: the control plane has no path for a single object
    secret: str = ""  # field of the response that is printed alone on stdout
    aliases: tuple[str, ...] = ()  # older names of the group
    set_name: str = "set"  # another name for `set`, which remains as a hidden alias
    module: str = ""  # module of a group with more commands: "tollkeeper.keys"
    positional_parent: bool = False  # the first parent may also be an argument of create and list (older syntax)

    @property
    def argument(self) -> str:
        """Return the argument's name in help."""
        return self.key.upper()

    @property
    def settable(self) -> tuple[Field, ...]:
        """Return the fields that `set` accepts."""
        return tuple(one for one in self.fields if "set" in one.verbs)
