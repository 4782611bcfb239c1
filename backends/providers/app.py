"""Runs the provider host: environment, LiteLLM, socket, graceful shutdown."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from backends.control.sealer import Sealer
from backends.engine.socket_file import SocketFile
from backends.providers.base import ProviderLibrary
from backends.providers.credentials import Credentials
from backends.providers.egress import Egress
from backends.providers.environment import withdraw
from backends.providers.host import ProviderConnection, ProviderHost
from backends.providers.settings import ProviderHostSettings
from backends.secrets.credential_references import ReferenceRules
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

_LAST_WORDS_SECONDS: Final = 2.0


async def run(settings: ProviderHostSettings) -> None:
    """Serve with LiteLLM until stopped. Raises ConfigurationError if LiteLLM is missing or the socket in use."""
    sealer = Sealer.existing(SecretFiles(settings.data / "secrets"))
    environment = withdraw(os.environ, settings.kept_variables)
    began = time.monotonic()
    try:
        from backends.providers.litellm_sdk import LiteLlm  # seconds, and only once the environment is as it shall be
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"this Python has no {error.name}; run the host with the one in .venv-providers (make providers sets it up)"
        ) from error
    library = LiteLlm()
    _log.info("litellm imported", extra={"version": library.version, "seconds": round(time.monotonic() - began, 1)})
    egress = settings.egress(environment)
    egress.hold()
    credentials = Credentials(
        settings.key_patterns, environment, None if sealer is None else sealer.open, ReferenceRules(settings.data)
    )
    await serve(settings, library, credentials, egress)


async def serve(
    settings: ProviderHostSettings, library: ProviderLibrary, credentials: Credentials, egress: Egress | None = None
) -> None:
    """Serve with `library` until SIGTERM or SIGINT; a second signal ends the graceful shutdown."""
    loop = asyncio.get_running_loop()
    socket_file = SocketFile(settings.socket, "a provider host", "TOLLKEEPER_PROVIDERS_SOCKET")
    try:
        stop, hurry = asyncio.Event(), asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, lambda: hurry.set() if stop.is_set() else stop.set())
        host = ProviderHost(settings, library, credentials, egress)
        server = await loop.create_unix_server(lambda: ProviderConnection(host), sock=socket_file.socket)
        _log.info("provider host listens", extra={"socket": settings.socket, "host": host.name})
        await stop.wait()
        _log.info("draining", extra={"requests": host.requests})
        host.drain()
        await _until(lambda: not host.requests or hurry.is_set(), settings.providers_drain_seconds)
        host.abort_all()
        await _until(lambda: not host.requests, _LAST_WORDS_SECONDS)
        host.close()
        server.close()
        await library.close()
    finally:
        socket_file.close()


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
