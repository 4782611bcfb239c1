"""Logging of processes: level and format by settings, summaries of repeats, severity for journald."""

import atexit
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_WINDOW_SECONDS: Final = 60.0
_MOST_KEPT: Final = 1000
# Fields that tell failures apart: failures of two targets are not repeats of each other.
_ABOUT: Final = ("target", "engine", "provider", "process", "tenant", "model", "url", "name", "channel", "budget")
# syslog's severities, which journald reads from the beginning of a line.
_SEVERITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_SEVERITY: Final = 7
# They log every call with its URL, which is secret for webhooks.
_QUIET: Final = ("httpx", "httpcore")


class LogSettings(BaseSettings):
    """Log settings of every process."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_repeats: int = Field(default=5, ge=0)  # maximum number of equal warnings per minute; 0: no limit


class FieldFormatter(logging.Formatter):
    """Formats `time LEVEL logger: event key=value ...`: the event, then the fields of `extra`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Render a record with its fields in their order."""
        line = super().format(record)
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        return f"{line} {fields}" if fields else line


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line: time, level, logger, event, the fields of `extra`, and an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record. Fields never replace one of the first four."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line = {**_fields(record), **line} if _fields(record).keys() & line.keys() else {**line, **_fields(record)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class SeverityFormatter(logging.Formatter):
    """Adds syslog's severity, as journald reads it, before each line of another formatter."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Render a record; every line of a traceback gets the severity."""
        severity = next((number for level, number in _SEVERITIES if record.levelno >= level), _DEBUG_SEVERITY)
        return "\n".join(f"<{severity}>{line}" for line in self._inner.format(record).split("\n"))


@dataclass(slots=True)
class _Window:
    ends: float
    written: int
    held: int
    last: logging.LogRecord


class RepeatFilter(logging.Filter):
    """Limits equal warnings and errors per minute, and logs a summary of the rest afterwards.

    Records are equal if logger, event, level, and target, tenant and the like are. A summary is the last of them with a
    field `repeated`, written with the next record after the minute, or at the end.
    """

    def __init__(self, most: int, write: Callable[[logging.LogRecord], None], clock: Callable[[], float]) -> None:
        super().__init__()
        self._most, self._write, self._clock = most, write, clock
        self._windows: dict[tuple[object, ...], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        now = self._clock()
        self._end_windows(now)
        if record.levelno < logging.WARNING or hasattr(record, "repeated"):
            return True
        key = (record.name, record.levelno, str(record.msg), *(str(getattr(record, each, "")) for each in _ABOUT))
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) < _MOST_KEPT:
                self._windows[key] = _Window(now + _WINDOW_SECONDS, 1, 0, record)
            return True
        if window.written < self._most:
            window.written += 1
            return True
        window.held, window.last = window.held + 1, record
        return False

    def flush(self) -> None:
        """Write the pending summaries."""
        self._end_windows(float("inf"))

    def _end_windows(self, now: float) -> None:
        ended = [(key, window) for key, window in self._windows.items() if window.ends <= now]
        for key, window in ended:
            del self._windows[key]
            if window.held:
                summary = logging.makeLogRecord(vars(window.last))
                summary.repeated = window.held
                summary.exc_info = None
                self._write(summary)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """The handler of `start_logging`, so that a later call can replace it."""


def start_logging(settings: LogSettings | None = None, environment: Mapping[str, str] = os.environ) -> None:
    """Log to stderr according to `settings`, or to defaults before they are read. The last call counts.

    If the root logger has other handlers, such as a test's, none is added.
    """
    settings = settings or LogSettings.model_construct()
    formatter: logging.Formatter = JsonFormatter() if settings.log_format == "json" else FieldFormatter()
    if _is_journal(environment):
        formatter = SeverityFormatter(formatter)
    handler = _StderrHandler(sys.stderr)
    handler.setFormatter(formatter)
    if settings.log_repeats:
        repeats = RepeatFilter(settings.log_repeats, handler.emit, time.monotonic)
        handler.addFilter(repeats)
        atexit.register(repeats.flush)
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _StderrHandler)]:
        root.removeHandler(earlier)
    if not root.handlers:
        root.addHandler(handler)
        root.setLevel(settings.log_level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _is_journal(environment: Mapping[str, str]) -> bool:
    """Return whether stderr is journald's socket, by systemd's JOURNAL_STREAM."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return bool(inode) and (device, inode) == (str(found.st_dev), str(found.st_ino))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
