"""How every process begins, and how it says that it cannot: logs with fields, one line, exit status 2."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from backends.secrets.private_files import keep_private
from contracts.errors import TollkeeperError

CANNOT_START: Final = 2

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


class FieldFormatter(logging.Formatter):
    """Writes `time LEVEL logger: event key=value ...`: the event, then the fields given as `extra`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Render a record with its fields in the order they were given."""
        line = super().format(record)
        fields = " ".join(f"{key}={value}" for key, value in vars(record).items() if key not in _STANDARD)
        return f"{line} {fields}" if fields else line


def run_process(name: str, settings_class: Callable[[], SettingsT], run: Callable[[SettingsT], None]) -> int:
    """Run a process to its end. Gives its exit status: 0, or 2 where it cannot start.

    What keeps it from starting (a bad variable, a port in use, a directory that cannot be written) is printed as one
    line, `name: what is wrong and what to do`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It logs every call with its whole URL, and the path of a webhook's is a secret.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = settings_class()
        data = getattr(settings, "data", None)
        if isinstance(data, Path):
            keep_private(data)
        run(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if not first["loc"]:  # of several together: their values, a secret among them, are not shown
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
