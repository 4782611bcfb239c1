"""`python -m gateway.control`: the control plane."""

import logging
import socket
import sys

import uvicorn

from backends.process import run_process
from contracts.errors import ConfigurationError
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings

log = logging.getLogger(__name__)

_BACKLOG = 512


def run(settings: ControlSettings) -> None:
    """Serve until told to stop. Raises ConfigurationError where it cannot start."""
    listener = listen(settings.host, settings.control_port)
    app = create_app(settings)
    config = uvicorn.Config(app, log_config=None, log_level="warning", access_log=False, server_header=False)
    log.info("control plane ready", extra={"host": settings.host, "port": settings.control_port})
    uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Bind the port here and not in uvicorn, so that one in use is a line that says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port} ({error.strerror}); "
            "free it, or set TOLLKEEPER_CONTROL_PORT or `--port-base`"
        ) from error
    return listener


if __name__ == "__main__":
    sys.exit(run_process("control plane", ControlSettings, run))
