"""Access to metrics and to details of health pages: for local callers, and with the metrics token.

Both contain names of models, pools, engines and machines, and show traffic and costs.
"""

import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from backends.network.network_addresses import is_loopback
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

_SECRET: Final = "metrics_token"
# Headers that a proxy adds: the request came from elsewhere although the connection is local.
_FORWARDED: Final = frozenset(
    ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
)


class DetailAccess:
    """Checks callers against TOLLKEEPER_METRICS_TOKEN, or the secret file `metrics_token` if that is not set."""

    def __init__(self, stated: str, data: Path) -> None:
        """`stated` is the token; if it is empty, the secret file is used, and created if missing."""
        self._is_stated = bool(stated)
        token = stated or SecretFiles(data / "secrets").get_or_create(_SECRET, prefix="tk-metrics-")
        self._expected = f"Bearer {token}".encode()

    def allows(self, peer: str, header_names: Iterable[str], authorization: bytes) -> bool:
        """Return whether a caller may see details. Header names are lower-case."""
        return self.has_token(authorization) or (is_loopback(peer) and _FORWARDED.isdisjoint(header_names))

    def allows_metrics(self, peer: str, header_names: Iterable[str], authorization: bytes) -> bool:
        """Return whether a caller may read metrics: as `allows`, but if a token is configured, local callers need it
        too.
        """
        if self._is_stated:
            return self.has_token(authorization)
        return self.allows(peer, header_names, authorization)

    def has_token(self, authorization: bytes) -> bool:
        """Return whether this Authorization header contains the metrics token."""
        return hmac.compare_digest(authorization, self._expected)


def find_metrics_token(stated: str, data: Path) -> str:
    """Return the token for requests to a process of this installation; empty if this user cannot read any."""
    try:
        return stated or SecretFiles(data / "secrets").get(_SECRET) or ""
    except ConfigurationError:
        return ""
