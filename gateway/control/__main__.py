"""`python -m gateway.control`: the control plane."""

import logging
import sys
from functools import partial

from backends.processes.kept_imports import kept_imports
from backends.processes.process import run_process
from backends.web.bounded_protocol import BoundedProtocol
from backends.web.listener import listen
from gateway.control.settings import ControlSettings

log = logging.getLogger(__name__)


def run(settings: ControlSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigurationError if the control plane cannot start."""
    listener = listen(settings.host, settings.control_port, "TOLLKEEPER_CONTROL_PORT")
    with kept_imports():  # not before the settings are known to be good
        import uvicorn

        from backends.web.server import Server
        from gateway.control.app import create_app

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=partial(BoundedProtocol, settings.bounds()),  # type: ignore[arg-type]
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    log.info("control plane ready", extra={"host": settings.host, "port": settings.control_port})
    Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(run_process("control plane", ControlSettings, run))
