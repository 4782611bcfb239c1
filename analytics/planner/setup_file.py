"""Reads a replica's setup from a JSON file, for plans of engines that this installation has not measured."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from analytics.planner.setup import ReplicaSetup
from contracts.errors import ConfigurationError

_TYPES: Final = get_type_hints(ReplicaSetup)
# The same fields; unknown fields are refused.
_Setup: Final[Any] = msgspec.defstruct(
    "_Setup",
    [
        (one.name, _TYPES[one.name]) if one.default is MISSING else (one.name, _TYPES[one.name], one.default)
        for one in fields(ReplicaSetup)
    ],
    forbid_unknown_fields=True,
    kw_only=True,
)


def read_setup(path: Path) -> ReplicaSetup:
    """Read a setup file. Raises ConfigurationError if it is not valid, InvalidRequest on impossible values."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"setup {path} cannot be read: {error.strerror}") from error
    return setup_of_json(data, f"setup {path}")


def setup_of_json(data: bytes, name: str) -> ReplicaSetup:
    """Parse a setup from JSON text; errors call it `name`. Raises as `read_setup` does."""
    try:
        found = msgspec.json.decode(data, type=_Setup)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigurationError(f"{name} is not valid: {error}") from error
    return ReplicaSetup(**{field: getattr(found, field) for field in found.__struct_fields__})


def setup_as_json(setup: ReplicaSetup) -> dict[str, Any]:
    """Return a setup in the form that `read_setup` reads; the price is exact decimal text."""
    made = _Setup(**{name: getattr(setup, name) for name in _Setup.__struct_fields__})
    plain: dict[str, Any] = msgspec.to_builtins(made)
    return plain
