"""The embedded store: ClickHouse's engine from the `chdb` wheel, made to listen like a server, in a process of its own.

The wheel's public interfaces keep the engine within one process. Its private binding `_chdb.query` runs
clickhouse-local, which since ClickHouse 26 can listen (`SYSTEM START LISTEN`). The next statement reads a named pipe
and so keeps the engine running until the pipe is closed. The binding is checked at the start, because it is not a
public interface.
"""

import errno
import fcntl
import logging
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from backends.segment_log.disk_room import WatchedDisk
from backends.segment_log.pieces import STORE, STORED_ROWS, Pieces
from backends.store.engine_files import StorePasswords, write_engine_files
from backends.store.engine_pages import give_back_pages_of
from backends.store.settings import StoreSettings
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

_STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_START_SECONDS: Final = 60.0  # a large store loads its parts first
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 2.0  # between checks of the engine and the disk; a stop takes effect at once
_GIVE_BACK_SECONDS: Final = 60.0  # between releases of unused pages of the engine's file
_START_POLL_SECONDS: Final = 0.002
_REMEDY: Final = "install chdb as in constraints/base.txt, or set TOLLKEEPER_STORE_URL to a ClickHouse server"


class EmbeddedStore:
    """One engine on one directory. Can run once per process, because the engine's globals do not survive a second
    start.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._directory = settings.directory / "data"
        self._config = settings.directory / "config"
        self._pipe = self._config / "stop"
        self._failure = ""
        self._stop_requested = threading.Event()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Blocks; must be called from the main thread.

        Raises ConfigurationError if the engine is missing or cannot listen, a port or the directory is in use, or the
        directory cannot be written.
        """
        # The engine replaces signal handlers and blocks the main thread in C++, so signals are blocked in every thread,
        # and one thread waits for them. `sigtimedwait` cannot be used: in CPython 3.11 it returns uninitialised memory
        # instead of None if SIGCONT interrupts it after its timeout.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        threading.Thread(target=self._wait_for_stop_signal, name="stop-signal", daemon=True).start()
        self._prepare()
        binding = _load_binding(self._config)
        os.chdir(self._config)  # where the engine looks for config.xml
        engine = threading.Thread(target=self._run_engine, args=(binding,), name="engine", daemon=True)
        started = time.monotonic()
        engine.start()
        holder = self._wait_until_listening(engine, started)
        if holder is None:
            return
        _log.info(
            "store listening host=%s http_port=%d native_port=%d directory=%s start_seconds=%.2f",
            self._settings.host,
            self._settings.store_http_port,
            self._settings.store_native_port,
            self._directory,
            time.monotonic() - started,
        )
        Pieces(self._settings.data).note(STORE)
        file_name = Path(getattr(binding, "__file__", "")).name
        give_back_at = 0.0
        disk = WatchedDisk("store", "TOLLKEEPER_DATA", self._directory)
        is_full = False
        while engine.is_alive():
            if time.monotonic() >= give_back_at:
                give_back_pages_of(file_name)
                give_back_at = time.monotonic() + _GIVE_BACK_SECONDS
            if (disk.state == "full") is not is_full:
                is_full = not is_full
                _log.warning("disk %s holds=store setting=TOLLKEEPER_DATA", "full" if is_full else "has room again")
            if self._stop_requested.wait(_POLL_SECONDS):
                self._stop(engine, holder)
                return
        raise ConfigurationError(f"the engine ended by itself: {self._failure or 'no reason given'}")

    def _wait_for_stop_signal(self) -> None:
        signal.sigwait(_STOP_SIGNALS)
        self._stop_requested.set()

    def _prepare(self) -> None:
        Pieces(self._settings.data).find_loss(STORE, self._directory, counted_as=STORED_ROWS)
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._config.mkdir(parents=True, exist_ok=True, mode=0o700)
            _require_unlocked(self._directory)
            self._pipe.unlink(missing_ok=True)
            os.mkfifo(self._pipe, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"the store cannot write to {self._directory} ({error.strerror}); "
                "choose a writable data directory with --data or TOLLKEEPER_DATA"
            ) from error
        secrets = self._settings.secrets
        passwords = StorePasswords(
            supervisor=secrets.get_or_create("store_supervisor"),
            writer=secrets.get_or_create("store_writer"),
            reader=secrets.get_or_create("store_reader"),
        )
        write_engine_files(self._config, self._settings, passwords)
        for port, variable in (
            (self._settings.store_http_port, "TOLLKEEPER_STORE_HTTP_PORT"),
            (self._settings.store_native_port, "TOLLKEEPER_STORE_NATIVE_PORT"),
        ):
            _require_free(self._settings.host, port, variable)

    def _run_engine(self, binding: Any) -> None:
        pipe = str(self._pipe).replace("\\", "\\\\").replace("'", "\\'")
        # INFILE is read by the engine's client part, so no SQL user needs permission to read files.
        script = (
            "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; "
            f"INSERT INTO FUNCTION null('line String') FROM INFILE '{pipe}' FORMAT LineAsString"
        )
        try:
            result = binding.query(script, "TabSeparated", path=str(self._directory))
            self._failure = result.error_message() if result.has_error() else ""
        except Exception as error:  # C++ exceptions of the engine arrive as several Python types
            self._failure = str(error)

    def _wait_until_listening(self, engine: threading.Thread, started: float) -> int | None:
        """Wait until the engine listens, lock out its launching user at once, and wait until it opens the pipe.

        Returns the pipe's write end, whose closing stops the engine; `None` if a stop signal came first.
        """
        is_locked = False
        while time.monotonic() - started < _START_SECONDS:
            if not engine.is_alive():
                raise ConfigurationError(self._explain_failure())
            if self._stop_requested.wait(_START_POLL_SECONDS):
                return None
            is_locked = is_locked or self._lock_out_launching_user()
            holder = _open_if_read(self._pipe) if is_locked else None
            if holder is not None:
                return holder
        raise ConfigurationError(
            f"the engine of chdb {_version()} did not listen on {self._settings.host}:"
            f"{self._settings.store_http_port} within {_START_SECONDS:.0f} seconds; {_REMEDY}"
        )

    def _lock_out_launching_user(self) -> bool:
        """Exhaust the failed logins of the launching user, which has no password (see engine_files); return false while
        the engine does not listen yet.

        Must be the first thing after that: until then, anyone on this machine can log in.
        """
        for _ in range(2):
            if self._get("/?user=default&password=locked-out&query=SELECT%201") is None:
                return False
        if self._get("/?query=SELECT%201") == 200:
            raise ConfigurationError(f"the engine of chdb {_version()} lets anyone in without a password; {_REMEDY}")
        return True

    def _get(self, path: str) -> int | None:
        host = "127.0.0.1" if self._settings.host in ("0.0.0.0", "::") else self._settings.host
        host = f"[{host}]" if ":" in host else host
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy for loopback
        try:
            with opener.open(f"http://{host}:{self._settings.store_http_port}{path}", timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return None

    def _explain_failure(self) -> str:
        if "Cannot lock file" in self._failure:
            return _locked_message(self._directory)
        reason = self._failure.split("Stack trace")[0].strip().splitlines()
        detail = reason[0][:300] if reason else "it ended without a word"
        return f"the engine of chdb {_version()} could not listen: {detail}; {_REMEDY}"

    def _stop(self, engine: threading.Thread, holder: int) -> None:
        started = time.monotonic()
        os.write(holder, b"stop\n")
        os.close(holder)  # the end of the pipe makes the engine flush and exit
        engine.join(_STOP_SECONDS)
        if engine.is_alive():
            # Safe, because acknowledged rows survive even kill -9; a stuck query must not block a shutdown.
            _log.warning("store did not stop in time seconds=%.0f", _STOP_SECONDS)
            return
        _log.info("store stopped seconds=%.2f", time.monotonic() - started)


def _load_binding(empty_directory: Path) -> Any:
    """Import the private binding. Raises ConfigurationError if it is missing or has changed."""
    try:
        from chdb import _chdb  # here, not above: it maps 500 MB and is absent where the store is a server
    except ImportError as error:
        raise ConfigurationError(f"the embedded store needs chdb, which cannot be imported; {_REMEDY}") from error
    except RuntimeError as error:
        raise ConfigurationError(f"chdb {_version()} cannot start: {str(error).splitlines()[0][:200]}") from error
    if not callable(getattr(_chdb, "query", None)):
        raise ConfigurationError(f"chdb {_version()} has no engine binding `_chdb.query`; {_REMEDY}")
    return _chdb


def _open_if_read(pipe: Path) -> int | None:
    """Open the pipe for writing; return `None` if no process reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _version() -> str:
    try:
        return metadata.version("chdb-core")
    except metadata.PackageNotFoundError:
        return "(unknown version)"


def _require_free(host: str, port: int, variable: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigurationError(f"port {port} on {host} is in use; free it or set {variable}") from error
            raise ConfigurationError(
                f"cannot listen on {host}:{port} ({error.strerror}); set TOLLKEEPER_HOST or {variable}"
            ) from error


def _require_unlocked(directory: Path) -> None:
    """Raise ConfigurationError if another process has the engine's lock, which a start would detect only late."""
    try:
        descriptor = os.open(directory / "status", os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(_locked_message(directory)) from error
    finally:
        os.close(descriptor)


def _locked_message(directory: Path) -> str:
    return f"the store directory {directory} is in use by another store process; stop it or choose another --data"
