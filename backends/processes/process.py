"""Starts a process. Errors at start are printed as one line, with exit status 2."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from backends.processes.logs import LogSettings, start_logging
from backends.secrets.private_files import keep_private
from contracts.errors import ConfigurationError, TollkeeperError
from contracts.serving.setting_names import find_unknown

CANNOT_START: Final = 2

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def require_known_variables(variables: Iterable[str] = os.environ) -> None:
    """Raise ConfigurationError if a variable TOLLKEEPER_* is not a setting, as a misspelt one would have no effect."""
    unknown = list(find_unknown(variables))
    if unknown:
        raise ConfigurationError("; ".join(unknown))


def run_process(name: str, settings_class: Callable[[], SettingsT], run: Callable[[SettingsT], None]) -> int:
    """Run a process to its end and return its exit status: 0, or 2 if it cannot start.

    The reason (a bad variable, a port in use, a directory that cannot be written) is printed as one line, `name: what
    is wrong and what to do`.
    """
    start_logging()
    try:
        require_known_variables()
        settings = settings_class()
        if isinstance(settings, LogSettings):
            start_logging(settings)
        data = getattr(settings, "data", None)
        if isinstance(data, Path):
            keep_private(data)
        run(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if not first["loc"]:  # concerns several settings, whose values are not shown because one may be secret
            print(f"{name}: {first['msg'].removeprefix('Value error, ')}", file=sys.stderr)
            return CANNOT_START
        variable = "TOLLKEEPER_" + "_".join(str(step) for step in first["loc"]).upper()
        print(f"{name}: {variable} is {first['input']!r}: {first['msg']}", file=sys.stderr)
        return CANNOT_START
    except TollkeeperError as error:
        print(f"{name}: {error.message}", file=sys.stderr)
        return CANNOT_START
    except KeyboardInterrupt:
        pass
    return 0
