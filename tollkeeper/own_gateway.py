"""TLS of the local gateway for the command line: trust exactly the gateway's own certificate."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from backends.network.tls import own_server_tls


def gateway_certificate(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of the gateway's certificate; "" if it uses plain HTTP."""
    return environment.get("TOLLKEEPER_TLS_CERTIFICATE", "")


def is_https(url: str) -> bool:
    """Return whether a URL's connections are encrypted. To read the system's CA certificates for others costs 20 ms."""
    return url.lower().startswith("https://")


def trust(url: str, environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """Return the TLS context that verifies the gateway at a URL; `None`: use the system's CA certificates.

    Raises ConfigurationError if the certificate cannot be read.
    """
    certificate = gateway_certificate(environment)
    return own_server_tls(Path(certificate)) if certificate and is_https(url) else None
