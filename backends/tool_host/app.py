"""Runs the tool host: programs, socket, graceful shutdown."""

import asyncio
import logging
import signal
from typing import Final

import uvicorn

from backends.engine.socket_file import SocketFile
from backends.tool_host.host import ToolHost
from backends.tool_host.programs import read_programs
from backends.tool_host.settings import ToolHostSettings
from backends.web.server import ServerWithoutSignals

_log = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 10


async def run(settings: ToolHostSettings) -> None:
    """Serve until stopped. Raises ConfigurationError if the programs' file is invalid or the socket in use."""
    programs = read_programs(settings.tools_file)
    socket_file = SocketFile(settings.socket, "a tool host", "TOLLKEEPER_TOOLS_SOCKET")
    try:
        host = ToolHost(programs, str(settings.data.absolute()))
        server = ServerWithoutSignals(  # `run` handles signals itself, to end programs after the server
            uvicorn.Config(
                host,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        _log.info("tool host listens", extra={"socket": settings.socket, "servers": sorted(programs)})
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.handle_exit, number, None)
        try:
            await server.serve(sockets=[socket_file.socket])
        finally:
            await host.close()
    finally:
        socket_file.close()
