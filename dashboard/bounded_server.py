"""Streamlit's command line, with the limits on connections that all our listeners have."""

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

# What uvicorn looks up where a server names no protocol: Streamlit names none, and takes none.
_CHOSEN: Final = "auto"
# What a page's widgets hold is far below. Streamlit's option is no help: it also bounds what the server sends.
_MESSAGE_BYTES: Final = 1 << 20


@cache
def _bounds() -> Bounds:
    return DashboardSettings().bounds()


def protocol(**of_uvicorn: Any) -> BoundedProtocol:
    """Create a connection's protocol, as uvicorn's protocol factory."""
    of_uvicorn["config"].ws_max_size = _MESSAGE_BYTES
    return BoundedProtocol(_bounds(), **of_uvicorn)


def _log_as_others(logger: logging.Logger) -> None:
    """Let a logger of Streamlit's write as every process of ours does."""
    logger.handlers.clear()
    logger.propagate = not logger.name.startswith("uvicorn")  # it has a form of its own


def _watch_no_files(flag_options: dict[str, Any]) -> None:
    """Do not watch Streamlit's configuration files, five times a second each: every option of ours is a flag."""


if __name__ == "__main__":
    start_logging(DashboardSettings())
    streamlit_logger.setup_formatter = _log_as_others
    streamlit_logger.update_formatter()
    bootstrap._install_config_watchers = _watch_no_files
    HTTP_PROTOCOLS[_CHOSEN] = "dashboard.bounded_server:protocol"
    uvicorn.Server = Server  # type: ignore[misc]  # which Streamlit looks up when it starts
    sys.exit(cli.main())
