"""The TCP listener of an engine host for gateways on other machines, with mutual TLS beyond loopback."""

import asyncio
import logging
from collections.abc import Callable

from backends.engine.settings import EngineHostSettings
from backends.llm.host.engine_address import EngineAddress
from backends.network.keepalive import keep_alive
from backends.network.tls import TlsFiles, server_tls
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)


async def listen_on_network(
    settings: EngineHostSettings, make: Callable[[], asyncio.Protocol]
) -> asyncio.Server | None:
    """Open the listener if one is configured. Raises ConfigurationError if that is impossible or insecure."""
    if not settings.engine_listen:
        return None
    address = EngineAddress.parse(settings.engine_listen)
    if address.path:
        raise ConfigurationError(
            f"TOLLKEEPER_ENGINE_LISTEN is {settings.engine_listen!r}; it looks like tcp://10.0.0.5:9400, and "
            "TOLLKEEPER_ENGINE_SOCKET is where a Unix socket goes"
        )
    files = TlsFiles(settings.engine_tls_certificate, settings.engine_tls_key, settings.engine_tls_client_ca)
    if not files.paths and not address.is_loopback:
        raise ConfigurationError(
            f"TOLLKEEPER_ENGINE_LISTEN is {settings.engine_listen!r}, which other machines reach, and an engine host "
            "serves whoever connects: set TOLLKEEPER_ENGINE_TLS_CERTIFICATE, TOLLKEEPER_ENGINE_TLS_KEY and "
            "TOLLKEEPER_ENGINE_TLS_CLIENT_CA, so that only your gateways can"
        )
    tls = server_tls(files, clients="required") if files.paths else None
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(make, address.host, address.port, ssl=tls)
    except OSError as error:
        raise ConfigurationError(
            f"{settings.engine_listen} cannot be listened on: {error.strerror or error}; set TOLLKEEPER_ENGINE_LISTEN "
            "to an address and a free port of this machine"
        ) from error
    for listening in server.sockets:
        keep_alive(listening)
    _log.info("engine host listens address=%s tls=%s", settings.engine_listen, "mutual" if tls else "none")
    return server
