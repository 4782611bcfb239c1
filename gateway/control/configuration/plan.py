"""Compares a configuration with the existing objects, and applies the difference in one transaction."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from backends.web.invalid_input import describe_invalid
from contracts.errors import Conflict, InvalidRequest, TollkeeperError
from contracts.suggestions import did_you_mean
from gateway.config.suggestions import known_fields
from gateway.control.configuration.kind import Change, Context, ExistingObject, Kind, plain
from gateway.control.configuration.table import BY_SECTION, KINDS

Action = Literal["create", "change", "delete"]
HIDDEN: Final = "(secret)"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wanted object, in plain data, with its section."""

    section: str
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs. Secrets are never shown; `None` means the default."""

    field: str
    before: Any
    after: Any


@dataclass(slots=True)
class Step:
    """The change of one object. `number` is its place among the wanted ones."""

    action: Action
    kind: Kind[Any]
    name: str
    entry: BaseModel
    number: int | None = None
    change: Change[Any] | None = None
    differences: list[Difference] = field(default_factory=list)


def make_plan(context: Context, wanted: Sequence[Wanted], prunes: frozenset[str]) -> list[Step]:
    """Return the steps from the existing to the wanted objects, in an executable order.

    Objects of the sections `prunes` that are not wanted are removed. Raises InvalidRequest, with `param` naming the
    object by its place, such as `objects.3.entry.policy`.
    """
    parsed: dict[str, list[tuple[int, BaseModel]]] = {}
    for number, one in enumerate(wanted):
        kind = BY_SECTION.get(one.section)
        if kind is None:
            raise InvalidRequest(
                f"there is no section {one.section!r}{did_you_mean(one.section, BY_SECTION)}",
                param=f"objects.{number}.section",
            )
        parsed.setdefault(one.section, []).append((number, _parse(kind, number, one.entry)))
    steps: list[Step] = []
    removals: list[Step] = []
    for kind in KINDS:
        found = _index(kind, context)
        of_kind, pruned = _steps_of(kind, context, parsed.get(kind.section, []), found)
        steps.extend(of_kind)
        if kind.section in prunes:
            removals[:0] = pruned
    return steps + removals


def apply_plan(context: Context, steps: Sequence[Step]) -> None:
    """Execute all steps. Raises the error of the first step that fails, naming the object."""
    for step in steps:
        with _named(step):
            if step.action == "create":
                step.kind.create(context, step.entry)
            elif step.action == "delete":
                step.kind.delete(context, step.entry)
            elif step.change is not None:
                step.kind.refuse_fixed(step.change.fields)
                step.kind.change(context, step.change)


def read_document(context: Context) -> dict[str, list[dict[str, Any]]]:
    """Return everything that exists as a configuration: sections with their entries, without defaults and secrets."""
    document: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        entries = []
        existing = list(_current(kind, context))
        named = Counter(kind.identity(found.entry) for found in existing)
        for found in existing:
            if not found.is_exported:
                continue
            shown = kind.shown(found.entry)
            if named[kind.identity(found.entry)] > 1 and (given := getattr(found.entry, "id", "")):
                shown = {"id": given, **shown}  # only its id tells it from another that counts the same
            entries.append(shown)
        if entries:
            document[kind.section] = entries
    return document


def _parse(kind: Kind[Any], number: int, entry: Mapping[str, Any]) -> BaseModel:
    try:
        parsed: BaseModel = kind.entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            near = did_you_mean(str(first["loc"][-1]), known_fields(kind.entry, first["loc"][:-1]))
            *outer, name = map(str, first["loc"])
            message = f"{'.'.join(outer) or f'a {kind.noun}'} has no field {name!r}{near}"
        elif first["loc"] and first["loc"][0] in kind.secrets:
            message = f"{place} is not usable: {first['msg']}"
        else:
            message = describe_invalid([first]).message
        raise InvalidRequest(message, param=_param(number, place)) from error
    return parsed


def _current(kind: Kind[Any], context: Context) -> Iterator[ExistingObject[Any]]:
    try:
        yield from kind.current(context)
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise Conflict(
            f"a {kind.noun} in the control database cannot be written as configuration ({place}); "
            f"see `tollkeeper rows list` and `tollkeeper {kind.section.replace('_', '-')} list`"
        ) from error


@dataclass(slots=True)
class _Index:
    all: list[ExistingObject[Any]]
    by_name: dict[str, list[ExistingObject[Any]]]


def _index(kind: Kind[Any], context: Context) -> _Index:
    index = _Index([], {})
    for found in _current(kind, context):
        index.all.append(found)
        for name in kind.names(found.entry):
            index.by_name.setdefault(name, []).append(found)
    return index


def _steps_of(
    kind: Kind[Any], context: Context, wanted: Sequence[tuple[int, BaseModel]], index: _Index
) -> tuple[list[Step], list[Step]]:
    numbers = {id(entry): number for number, entry in wanted}
    seen: dict[str, int] = {}
    kept: dict[int, int] = {}
    steps = []
    for entry in _ordered(kind, wanted):
        number = numbers[id(entry)]
        _refuse_twice(kind, entry, number, seen)
        found = _match(kind, entry, number, index)
        name = kind.identity(entry)
        if found is None:
            steps.append(Step("create", kind, name, entry, number, differences=_shown(kind, {}, plain(entry))))
            continue
        if id(found) in kept:
            raise InvalidRequest(
                f"{kind.noun} {name!r} is the same object as another entry; leave one of them out",
                param=f"objects.{number}",
            )
        kept[id(found)] = number
        after = kind.completed(context, entry, found.entry)
        old, new = plain(found.entry), plain(after)
        fields = frozenset(each for each in {*old, *new} if old.get(each) != new.get(each))
        if fields:
            change = Change(found.entry, after, entry, fields)
            differences = [each for each in _shown(kind, old, new) if each.field in fields]
            steps.append(Step("change", kind, name, after, number, change, differences))
    pruned = [
        Step("delete", kind, kind.identity(found.entry), found.entry)
        for found in reversed(kind.ordered_found(index.all))
        if found.is_prunable and id(found) not in kept
    ]
    return steps, pruned


def _ordered(kind: Kind[Any], wanted: Sequence[tuple[int, BaseModel]]) -> Sequence[BaseModel]:
    try:
        return kind.ordered([entry for _, entry in wanted])
    except InvalidRequest as error:  # about the entry of this name
        numbers = (number for number, entry in wanted if kind.identity(entry) == error.param)
        error.param = _param(next(numbers, None), "")
        raise


def _match(kind: Kind[Any], entry: BaseModel, number: int, index: _Index) -> ExistingObject[Any] | None:
    for name in kind.names(entry):
        found = index.by_name.get(name, [])
        if len(found) > 1:
            ids = ", ".join(str(getattr(one.entry, "id", "")) for one in found)
            raise InvalidRequest(
                f"{len(found)} {kind.section} are meant by {kind.identity(entry)!r}; give the id of one of them: {ids}",
                param=f"objects.{number}",
            )
        if found:
            return found[0]
    return None


def _refuse_twice(kind: Kind[Any], entry: BaseModel, number: int, seen: dict[str, int]) -> None:
    name = kind.names(entry)[0]
    if name in seen:
        raise InvalidRequest(
            f"{kind.noun} {kind.identity(entry)!r} is given twice; leave one of them out",
            param=f"objects.{number}",
        )
    seen[name] = number


def _shown(kind: Kind[Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    found = []
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if name in kind.secrets:
            before, after = (HIDDEN if before else None), (HIDDEN if after else None)
        found.append(Difference(name, before, after))
    return found


@contextmanager
def _named(step: Step) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidRequest(describe_invalid([first]).message, param=_param(step.number, place)) from error
    except TollkeeperError as error:
        if step.number is None:
            error.message = f"{step.kind.noun} {step.name!r} cannot be removed: {error.message}"
            error.param = "prune"
        else:
            error.param = _param(step.number, error.param or "")
        raise


def _param(number: int | None, place: str) -> str:
    return f"objects.{number}" + (f".entry.{place}" if place else "")
