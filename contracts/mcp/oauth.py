"""How the gateway obtains OAuth access tokens for an MCP server, and the tokens that it stores."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec

from contracts.errors import ConfigurationError

CLIENT_SECRET: Final = "client_secret"  # in a server's settings.credentials
REFRESH_TOKEN: Final = "refresh_token"

_CLIENT_ID: Final = re.compile(r"[\x21-\x7e]{1,500}")
# RFC 6749, appendix A.4: names with one space between them.
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_MAX_SCOPE: Final = 1000


@dataclass(frozen=True, slots=True)
class OAuthSpec:
    """The public part of the gateway's registration as an OAuth client of one server. The secrets are in the server's
    credentials.

    If neither `issuer` nor `token_url` is given, the server's own metadata name the authorization server.
    """

    client_id: str
    scope: str = ""
    issuer: str = ""  # of the authorization server
    token_url: str = ""  # its token endpoint, if its metadata should not be read
    resource: str = ""  # empty: as the server's metadata name it, else the server's url

    def __post_init__(self) -> None:
        """Raise ConfigurationError, naming the field at fault."""
        if _CLIENT_ID.fullmatch(self.client_id) is None:
            raise ConfigurationError("client_id is 1 to 500 visible ASCII characters", param="oauth.client_id")
        if self.scope and (len(self.scope) > _MAX_SCOPE or _SCOPE.fullmatch(self.scope) is None):
            raise ConfigurationError(
                f"scope is names with single spaces between them, at most {_MAX_SCOPE} characters", param="oauth.scope"
            )
        if self.issuer and self.token_url:
            raise ConfigurationError(
                "issuer and token_url exclude each other: token_url is used without reading an issuer's metadata",
                param="oauth.token_url",
            )
        for field in ("issuer", "token_url", "resource"):
            self._check_url(field)

    def _check_url(self, field: str) -> None:
        url = getattr(self, field)
        if not url:
            return
        try:
            parts = urlsplit(url)
            is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_sound = False
        if not is_sound or parts.fragment or parts.username or not url.isascii() or any(one <= " " for one in url):
            raise ConfigurationError(
                f"{field} must be a URL such as https://login.example.com, without user and fragment, not "
                f"{url[:200]!r}",
                param=f"oauth.{field}",
            )


class AccessGrant(msgspec.Struct, frozen=True):
    """An access token and its expiry, in Unix seconds; `None` if the authorization server did not state it."""

    access_token: str
    renew_at: float | None = None  # from then on a new one is requested, while this one is still valid
    expires_at: float | None = None
    refresh_token: str = ""  # issued with it; empty: none
    seed: str = ""  # identifies the configured refresh token that all this came from


def seed_of(refresh_token: str) -> str:
    """Return 32 hexadecimal digits that identify a configured refresh token without revealing it."""
    return hashlib.sha256(refresh_token.encode()).hexdigest()[:32]
