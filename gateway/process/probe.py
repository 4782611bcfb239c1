"""`python -m gateway.process.probe`: status 0 if this machine's gateway is ready, over TLS if it uses it."""

import http.client
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backends.network.tls import own_server_tls
from contracts.errors import TollkeeperError

_SECONDS: Final = 2.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen on, not to connect to


def probe(environment: Mapping[str, str]) -> str:
    """Ask GET /ready; return what is wrong, empty if nothing is."""
    given = environment.get("TOLLKEEPER_HOST") or "127.0.0.1"
    host, port = _EVERYWHERE.get(given, given), int(environment.get("TOLLKEEPER_GATEWAY_PORT") or 8080)
    certificate = environment.get("TOLLKEEPER_TLS_CERTIFICATE")
    try:
        connection = (
            http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=own_server_tls(Path(certificate)))
            if certificate
            else http.client.HTTPConnection(host, port, timeout=_SECONDS)
        )
        connection.request("GET", "/ready")
        status = connection.getresponse().status
    except TollkeeperError as error:
        return error.message
    except (OSError, ssl.SSLError, http.client.HTTPException) as error:
        return f"port {port} on {host} does not answer: {error}"
    return "" if status == 200 else f"status {status}"


if __name__ == "__main__":
    problem = probe(os.environ)
    if problem:
        sys.exit(f"probe: {problem}")
