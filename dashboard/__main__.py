"""`python -m dashboard`: check what can fail, then become the Streamlit server."""

import os
import socket
import sys
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from backends.processes.process import require_known_variables
from backends.secrets.private_files import keep_private
from contracts.errors import ConfigurationError, TollkeeperError
from dashboard.settings import DashboardSettings
from dashboard.theme import theme_flags

# Each page run is a thread: glibc would give each its own arena, and Arrow would not return freed memory.
_FRUGAL: Final = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def command(settings: DashboardSettings) -> list[str]:
    """Return the Streamlit server's command line. All options are flags, so no file in the cwd changes the page."""
    flags = {
        "global.developmentMode": "false",  # else Streamlit guesses it from the path that it is installed in
        "server.address": settings.host,
        "server.port": str(settings.dashboard_port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "runner.magicEnabled": "false",
        "runner.postScriptGC": "false",  # a garbage collection after each run takes 60 ms and more
        **theme_flags(),
    }
    app = Path(__file__).with_name("server.py")
    return [
        sys.executable,
        "-P",  # a folder `dashboard` in the working directory must not shadow the package
        "-m",
        "dashboard.bounded_server",
        "run",
        str(app),
        *(f"--{name}={value}" for name, value in flags.items()),
    ]


def check_port(host: str, port: int) -> None:
    """Raise ConfigurationError if the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port} ({error.strerror}); "
                "stop what uses it or choose another with TOLLKEEPER_DASHBOARD_PORT"
            ) from error


def main() -> None:
    """Start the dashboard. Ends with one line on stderr and status 2 if it cannot start."""
    try:
        require_known_variables()
        settings = DashboardSettings()
        keep_private(settings.data)  # the umask is the server's too
        settings.bounds()  # as its server will, to say here what is wrong
        check_port(settings.host, settings.dashboard_port)
    except ValidationError as error:
        first = error.errors()[0]
        name = "TOLLKEEPER_" + "_".join(str(part) for part in first["loc"]).upper()
        sys.exit(_refuse(f"{name}: {first['msg']}"))
    except TollkeeperError as error:
        sys.exit(_refuse(error.message))
    arguments = command(settings)
    # Becomes the server: one process, which gets the signals itself.
    os.execve(arguments[0], arguments, {**_FRUGAL, **os.environ})


def _refuse(message: str) -> int:
    print(f"dashboard: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
