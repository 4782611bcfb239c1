"""`python -m analytics`: the analytics process."""

import logging
import socket
import sys
from functools import partial

from analytics.settings import AnalyticsSettings
from backends.processes.kept_imports import kept_imports
from backends.processes.process import run_process
from backends.web.bounded_protocol import BoundedProtocol
from backends.web.listener import listen

log = logging.getLogger(__name__)

_STOP_SECONDS = 10  # time for requests in progress at shutdown


def run(settings: AnalyticsSettings) -> None:
    """Serve HTTP and run the background loops until a signal. Raises ConfigurationError if it cannot start."""
    listener = listen(settings.host, settings.analytics_port, "TOLLKEEPER_ANALYTICS_PORT")
    serve(settings, listener)


def serve(settings: AnalyticsSettings, listener: socket.socket) -> None:
    """Serve on a bound socket."""
    with kept_imports():  # only after the settings were validated
        import uvicorn

        from analytics.app import create_app
        from backends.web.server import Server

    config = uvicorn.Config(
        create_app(settings),
        http=partial(BoundedProtocol, settings.bounds()),  # type: ignore[arg-type]
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    log.info("analytics ready", extra={"host": settings.host, "port": settings.analytics_port})
    Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(run_process("analytics", AnalyticsSettings, run))
