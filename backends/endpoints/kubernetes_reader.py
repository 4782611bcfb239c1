"""Endpoints of a Kubernetes service: its EndpointSlices are listed once and then watched."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from backends.endpoints.source import Endpoint, KubernetesSource
from backends.endpoints.watch import SourceAway, Tell
from contracts.errors import ConfigurationError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE: Final = 500
_CONNECT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 300  # after which the server ends a watch
_SPARE_SECONDS: Final = 15.0  # for the server to do so
_MOST_LINE_BYTES: Final = 16 << 20
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """Where the API server is and how it is spoken to. Empty and `None`: as a pod is told."""

    url: str = ""
    token_file: Path | None = None
    authority: Path | None = None  # PEM

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection. Raises SourceAway if nothing says where the server is, or it cannot be reached."""
        parts = urlsplit(self.url or _own_url())
        try:
            if parts.scheme == "https":
                authority = self.authority or _ACCOUNT / "ca.crt"
                context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    parts.hostname or "", parts.port, timeout=_CONNECT_SECONDS, context=context
                )
            else:
                connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_CONNECT_SECONDS)
            connection.connect()
        except (OSError, ssl.SSLError) as error:
            raise SourceAway(f"the Kubernetes API does not answer ({type(error).__name__})") from error
        connection.sock.settimeout(seconds)
        return connection

    def headers(self) -> dict[str, str]:
        """Return what every request carries. The token is read each time: it is renewed every hour."""
        file = self.token_file or _ACCOUNT / "token"
        headers = {"Accept": "application/json", "User-Agent": "tollkeeper"}
        if file.exists():
            headers["Authorization"] = f"Bearer {file.read_text().strip()}"
        return headers


class _Gone(Exception):
    """The version from which the watch was to go on is too old: all has to be listed again."""


class KubernetesReader:
    """Lists the slices of one service and watches them."""

    def __init__(self, source: KubernetesSource, api: KubernetesApi) -> None:
        self._api = api
        self._port = source.port
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{source.namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={source.service}"
        self._slices: dict[str, Mapping[str, Any]] = {}
        self._version = ""
        self._connection: http.client.HTTPConnection | None = None

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Tell of the endpoints and of each change. Raises SourceAway; the next call goes on where this one ended."""
        while not stop.is_set():
            try:
                if not self._version:
                    self._list()
                    tell(self._endpoints())
                for event in self._events():
                    if self._take(event):
                        tell(self._endpoints())
            except _Gone:
                self._version = ""
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                raise SourceAway(f"the watch at the Kubernetes API broke ({type(error).__name__})") from error

    def interrupt(self) -> None:
        """End the watch that waits for events."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _list(self) -> None:
        slices: dict[str, Mapping[str, Any]] = {}
        token = ""
        while True:
            wanted = {"labelSelector": self._selector, "limit": str(_PAGE), **({"continue": token} if token else {})}
            with self._answer(wanted, _CONNECT_SECONDS) as response:
                page = json.loads(response.read())
            slices |= {item["metadata"]["name"]: item for item in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self._slices, self._version = slices, page["metadata"]["resourceVersion"]

    def _events(self) -> Iterator[Mapping[str, Any]]:
        wanted = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._answer(wanted, _WATCH_SECONDS + _SPARE_SECONDS) as response:
            while line := response.readline(_MOST_LINE_BYTES):
                if line.strip():
                    yield json.loads(line)

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Accept an event; return whether endpoints may have changed."""
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            if found.get("code") == _GONE:
                raise _Gone
            raise SourceAway(f"the Kubernetes API ended the watch with status {found.get('code')}")
        self._version = found["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return False
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self._slices.pop(name, None)
        else:
            self._slices[name] = found
        return True

    def _endpoints(self) -> frozenset[Endpoint]:
        by_type: dict[str, set[Endpoint]] = {}
        for found in self._slices.values():
            port = self._port_of(found)
            if port is not None:
                by_type.setdefault(found["addressType"], set()).update(
                    (endpoint["addresses"][0], port) for endpoint in found.get("endpoints") or () if _is_ready(endpoint)
                )
        # A service of two address families has each pod in both kinds of slices.
        return frozenset(by_type.get("IPv4") or by_type.get("IPv6") or by_type.get("FQDN") or ())

    def _port_of(self, found: Mapping[str, Any]) -> int | None:
        for port in found.get("ports") or ():
            if port.get("port") and (not self._port or port.get("name") == self._port):
                return int(port["port"])
        return None

    @contextlib.contextmanager
    def _answer(self, wanted: Mapping[str, str], seconds: float) -> Iterator[http.client.HTTPResponse]:
        connection = self._api.connect(seconds)
        self._connection = connection
        try:
            connection.request("GET", f"{self._path}?{urlencode(wanted)}", headers=self._api.headers())
            response = connection.getresponse()
            if response.status == _GONE:
                raise _Gone
            if response.status != http.client.OK:
                raise SourceAway(f"the Kubernetes API answers {response.status} for {self._path}{_remedy(response)}")
            yield response
        finally:
            self._connection = None
            connection.close()


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Return whether an endpoint takes requests. What is not said is true; one that terminates takes none."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating") and bool(endpoint["addresses"])


def _remedy(response: http.client.HTTPResponse) -> str:
    if response.status not in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return ""
    return "; let the service account get, list and watch endpointslices of discovery.k8s.io"


def _own_url() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SourceAway("this is no pod of Kubernetes; set TOLLKEEPER_KUBERNETES_URL")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def check_api(api: KubernetesApi) -> None:
    """Raise ConfigurationError if the URL of the API server is unusable."""
    if api.url and (urlsplit(api.url).scheme not in ("http", "https") or not urlsplit(api.url).hostname):
        raise ConfigurationError(f"TOLLKEEPER_KUBERNETES_URL is {api.url!r}; give https://HOST:PORT")
