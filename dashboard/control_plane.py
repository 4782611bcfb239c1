"""The dashboard's HTTP client for the control plane; it uses the viewer's token, so it has the viewer's rights."""

from collections.abc import Mapping
from typing import Any, Final

import httpx

from backends.http_client.control_plane import ControlPlaneVerbs
from backends.http_client.retry_after import retry_after_seconds
from contracts.errors import (
    AuthenticationFailed,
    Conflict,
    ControlUnavailable,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    TollkeeperError,
)

_TIMEOUT_SECONDS: Final = 10.0
_REFUSALS: Final[Mapping[int, type[TollkeeperError]]] = {
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
}


class ControlPlane(ControlPlaneVerbs):
    """Calls the control plane as one viewer. Safe to share between threads.

    Every method returns the response's JSON. Raises the error that the control plane returned, with its message;
    ControlUnavailable if it does not answer; AuthenticationFailed if the viewer has no token.
    """

    def __init__(self, client: httpx.Client, token: str | None, unreadable: list[dict[str, Any]] | None = None) -> None:
        """Set the connections and the viewer's token. Unreadable rows of lists are appended to `unreadable`."""
        self._client = client
        self._token = token
        self._unreadable = unreadable

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """Send one request with the viewer's token; return the answer's JSON."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            reply = self._client.request(method, path, json=body, params=dict(query or {}), headers=headers)
        except httpx.HTTPError as error:
            raise ControlUnavailable(
                f"the control plane does not answer at {self._client.base_url}; nothing was changed; is it running? "
                "(TOLLKEEPER_CONTROL_URL)"
            ) from error
        try:
            answer: dict[str, Any] = reply.json() if reply.content else {}
            if reply.is_success:
                if self._unreadable is not None:
                    self._unreadable.extend(answer.get("unreadable") or ())
                return answer
            said = answer["error"]
            message, field, code = str(said["message"]), said.get("param"), said.get("code")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ControlUnavailable(
                f"{self._client.base_url} answers, but not as Tollkeeper's control plane (status {reply.status_code})"
            ) from error
        refusal = _REFUSALS.get(reply.status_code, InvalidRequest if reply.status_code < 500 else ControlUnavailable)
        waits = retry_after_seconds(reply.headers.get("retry-after"))
        raise refusal(message, param=field, code=code, retry_after_seconds=waits)


def open_client(url: str) -> httpx.Client:
    """Return an HTTP client for a control plane. It ignores proxy variables, so no proxy sees viewers' tokens."""
    return httpx.Client(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False)
