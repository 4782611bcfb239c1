"""The programs of a tool host, from a YAML file. Whoever can write that file decides what runs on this machine."""

import os
import re
from pathlib import Path
from typing import Annotated, Final

import msgspec
import yaml
from msgspec import Meta

from backends.secrets.credential_references import read_reference
from contracts.errors import ConfigurationError
from contracts.mcp.servers import SERVER_NAME

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_MAX_PROGRAMS: Final = 100
# Variables of this process that programs inherit; none is secret.
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One MCP server's program.

    `environment` has values, or references `env:NAME` and `file:PATH`. `key_variable` is the variable that receives the
    key from the gateway's configuration, if there is one.
    """

    command: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=100)]
    environment: dict[str, str] = {}
    key_variable: str = ""
    directory: str = ""  # working directory; empty: the data directory
    max_processes: Annotated[int, Meta(ge=1, le=1000)] = 16
    idle_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 600.0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    servers: dict[str, Program]


def read_programs(path: Path | None) -> dict[str, Program]:
    """Return the programs by name. Raises ConfigurationError if the file is missing or invalid."""
    if path is None:
        raise ConfigurationError("TOLLKEEPER_TOOLS_FILE is not set; it names the YAML file of the servers' programs")
    try:
        content = yaml.safe_load(path.read_text())
        programs = msgspec.convert(content, _File).servers
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"TOLLKEEPER_TOOLS_FILE {path} cannot be read: {error}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"TOLLKEEPER_TOOLS_FILE {path}: {error}") from error
    if len(programs) > _MAX_PROGRAMS:
        raise ConfigurationError(
            f"TOLLKEEPER_TOOLS_FILE {path} has {len(programs)} servers; {_MAX_PROGRAMS} is the most"
        )
    for name, program in programs.items():
        if SERVER_NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"TOLLKEEPER_TOOLS_FILE {path}: {name[:60]!r} is no name: 1 to 32 of a-z, 0-9, '-'"
            )
        variables = [*program.environment, *filter(None, [program.key_variable])]
        bad = next((one for one in variables if _VARIABLE.fullmatch(one) is None), None)
        if bad is not None:
            raise ConfigurationError(f"TOLLKEEPER_TOOLS_FILE {path}: server {name!r}: {bad[:60]!r} names no variable")
    return programs


def environment_of(program: Program, key: str) -> dict[str, str]:
    """Return a program's environment. Raises ConfigurationError if a reference cannot be resolved."""
    found = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found |= {name: _resolved(name, value) for name, value in program.environment.items()}
    if key and program.key_variable:
        found[program.key_variable] = key
    return found


def _resolved(name: str, value: str) -> str:
    if not value.startswith(("env:", "file:")):
        return value
    try:
        return read_reference(value, None)
    except ConfigurationError as error:
        raise ConfigurationError(f"variable {name}: {error.message}") from error
