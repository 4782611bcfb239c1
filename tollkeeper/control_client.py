"""The command line's HTTP client for the control plane. Every error is one sentence with a remedy."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import httpx

from backends.http_client.control_plane import ControlPlaneVerbs
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError, TollkeeperError
from tollkeeper.installation import Installation
from tollkeeper.own_gateway import is_https
from tollkeeper.ports import Ports

TOKEN_VARIABLE: Final = "TOLLKEEPER_ADMIN_TOKEN"  # environment variable for a personal token, with its own role
_TIMEOUT_SECONDS: Final = 10.0


class ControlPlaneRefused(TollkeeperError):
    """The control plane refused a valid request; `reason` is its message, `param` the field at fault."""

    code = "control_plane_refused"

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(f"{reason} (field: {field})" if field else reason, param=field)
        self.reason = reason


class ControlClient(ControlPlaneVerbs):
    """Calls the control plane with this installation's admin token. Raises ConfigurationError if the URL is invalid."""

    def __init__(self, url: str, admin_token: str, transport: httpx.BaseTransport | None = None) -> None:
        _require_url(url)
        self._url = url
        # No proxy from the environment: the admin token must not travel through one.
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {admin_token}"},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
            # Loading the system's CA certificates takes 20 ms of CPU time; it is not needed without TLS.
            verify=is_https(url),
            transport=transport,
        )

    @classmethod
    def of_installation(cls, data: Path, control_url: str) -> "ControlClient":
        """Return a client of the control plane at the given URL, else at the one that `tollkeeper up` saved, else at
        the port in the environment.

        The token is TOLLKEEPER_ADMIN_TOKEN if set, else the installation's. Raises ConfigurationError if there is
        neither.
        """
        installation = Installation(data)
        token = os.environ.get(TOKEN_VARIABLE) or SecretFiles(installation.secrets).get("admin_token")
        if token is None:
            raise ConfigurationError(
                f"{installation.data} has no admin token; run `tollkeeper up` once, use another --data, or set "
                f"{TOKEN_VARIABLE}"
            )
        url = control_url or installation.address_of("control") or _local_url()
        return cls(url, token)

    def post(self, path: str, body: Mapping[str, object], timeout_seconds: float = _TIMEOUT_SECONDS) -> dict[str, Any]:
        """Send a POST request, which creates an object or starts an action; return the response's JSON."""
        return self.call("POST", path, body, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int] | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Send one request; return the response's JSON. Raises ControlPlaneRefused or ConfigurationError."""
        try:
            reply = self._client.request(method, path, json=body, params=query or None, timeout=timeout_seconds)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise ConfigurationError(
                f"the control plane at {self._url} has not answered within {timeout_seconds:g} s; it may still be "
                "working: check the result before you repeat the command"
            ) from error
        except httpx.HTTPError as error:
            raise ConfigurationError(
                f"the control plane does not answer at {self._url}; start it with `tollkeeper up`, "
                "or name its address with --control-url"
            ) from error
        try:
            answer: dict[str, Any] = reply.json()
            if reply.is_success:
                _warn_of_unreadable(answer)
                return answer
            message, field = str(answer["error"]["message"]), answer["error"].get("param")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._url} answers, but not as Tollkeeper's control plane (status {reply.status_code})"
            ) from error
        raise ControlPlaneRefused(message, field)


def _warn_of_unreadable(answer: Mapping[str, Any]) -> None:
    """Print the unreadable rows of a list to stderr."""
    for row in answer.get("unreadable") or ():
        print(
            f"tollkeeper: row {row['id']} of {row['table']} is not shown: {row['reason']}; see `tollkeeper rows list`",
            file=sys.stderr,
        )


def _local_url() -> str:
    return f"http://127.0.0.1:{Ports.from_environment(os.environ).control}"


def _require_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
        is_url = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        is_url = False
    if not is_url:
        raise ConfigurationError(f"--control-url {url!r} is not a URL; it looks like http://127.0.0.1:8081")
