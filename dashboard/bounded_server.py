"""Streamlit's command line, with the connection limits that all processes of Tollkeeper have."""

import logging
import sys
from functools import cache
from typing import Any, Final

import uvicorn
from streamlit import logger as streamlit_logger
from streamlit.web import bootstrap, cli
from uvicorn.config import HTTP_PROTOCOLS

from backends.processes.logs import start_logging
from backends.web.bounded_protocol import BoundedProtocol, Bounds
from backends.web.server import Server
from dashboard.settings import DashboardSettings

# The protocol that uvicorn uses by default: Streamlit does not set one and has no option for it.
_CHOSEN: Final = "auto"
# The state of a page's widgets is far smaller. Streamlit's own option would also limit what the server sends.
_MESSAGE_BYTES: Final = 1 << 20


@cache
def _bounds() -> Bounds:
    return DashboardSettings().bounds()


def protocol(**of_uvicorn: Any) -> BoundedProtocol:
    """Return a protocol object for a connection; this is uvicorn's protocol factory."""
    of_uvicorn["config"].ws_max_size = _MESSAGE_BYTES
    return BoundedProtocol(_bounds(), **of_uvicorn)


def _log_as_others(logger: logging.Logger) -> None:
    """Give a logger of Streamlit the log format of Tollkeeper's processes."""
    logger.handlers.clear()
    logger.propagate = not logger.name.startswith("uvicorn")  # it has its own handler and format


def _watch_no_files(flag_options: dict[str, Any]) -> None:
    """Start no watchers of Streamlit's configuration files, which poll five times a second: all options are flags."""


if __name__ == "__main__":
    start_logging(DashboardSettings())
    streamlit_logger.setup_formatter = _log_as_others
    streamlit_logger.update_formatter()
    bootstrap._install_config_watchers = _watch_no_files
    HTTP_PROTOCOLS[_CHOSEN] = "dashboard.bounded_server:protocol"
    uvicorn.Server = Server  # type: ignore[misc]  # which Streamlit looks up when it starts
    sys.exit(cli.main())
