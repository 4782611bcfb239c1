"""Watches one collection of Kubernetes objects: lists it once, then receives its changes."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from backends.endpoints.watch import SourceAway
from backends.network.keepalive import keep_alive
from contracts.errors import ConfigurationError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE: Final = 500
_CONNECT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 300  # the server ends a watch after this time
_SPARE_SECONDS: Final = 15.0  # grace period for that
_MOST_LINE_BYTES: Final = 16 << 20
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """Address and credentials of the API server; by default those that Kubernetes gives to a pod."""

    url: str = ""
    token_file: Path | None = None
    authority: Path | None = None  # PEM

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection. Raises SourceAway if the server's address is unknown, or it cannot be reached."""
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
        keep_alive(connection.sock)  # detects a vanished server: a watch may be silent for minutes
        connection.sock.settimeout(seconds)
        return connection

    def headers(self) -> dict[str, str]:
        """Return the headers of every request. The token is read each time: it is renewed every hour."""
        file = self.token_file or _ACCOUNT / "token"
        headers = {"Accept": "application/json", "User-Agent": "tollkeeper"}
        if file.exists():
            headers["Authorization"] = f"Bearer {file.read_text().strip()}"
        return headers


class _Gone(Exception):
    """The version from which the watch should continue is too old: everything must be listed again."""


class Collection:
    """The objects of one resource in a namespace that match a selector, by name."""

    def __init__(
        self, api: KubernetesApi, group: str, namespace: str, resource: str, selector: Mapping[str, str]
    ) -> None:
        """`group` includes its version, such as `discovery.k8s.io/v1`; empty: the core group."""
        self._api = api
        self._group = group
        self._resource = resource
        self._path = f"{f'/apis/{group}' if group else '/api/v1'}/namespaces/{namespace}/{resource}"
        self._selector = selector
        self._version = ""
        self._connection: http.client.HTTPConnection | None = None
        self.items: dict[str, Mapping[str, Any]] = {}

    @property
    def is_listed(self) -> bool:
        """Return whether the server has listed the objects."""
        return bool(self._version)

    def follow(self, on_change: Callable[[], None], stop: threading.Event) -> None:
        """Report each change until stopped. Raises SourceAway; the next call continues where this one ended."""
        while not stop.is_set():
            try:
                if not self._version:
                    self._list(stop)
                    on_change()
                for event in self._events(stop):
                    if self._take(event):
                        on_change()
            except _Gone:
                self._version = ""
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if not stop.is_set():
                    raise SourceAway(f"the watch at the Kubernetes API broke ({type(error).__name__})") from error

    def interrupt(self) -> None:
        """End the watch that waits for events."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _list(self, stop: threading.Event) -> None:
        items: dict[str, Mapping[str, Any]] = {}
        token = ""
        while True:
            wanted = {**self._selector, "limit": str(_PAGE), **({"continue": token} if token else {})}
            with self._answer(wanted, _CONNECT_SECONDS, stop) as response:
                page = json.loads(response.read())
            items |= {item["metadata"]["name"]: item for item in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self.items, self._version = items, page["metadata"]["resourceVersion"]

    def _events(self, stop: threading.Event) -> Iterator[Mapping[str, Any]]:
        wanted = {
            **self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._answer(wanted, _WATCH_SECONDS + _SPARE_SECONDS, stop) as response:
            while line := response.readline(_MOST_LINE_BYTES):
                if line.strip():
                    yield json.loads(line)

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Accept an event; return whether anything but the version may have changed."""
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
            self.items.pop(name, None)
        else:
            self.items[name] = found
        return True

    @contextlib.contextmanager
    def _answer(
        self, wanted: Mapping[str, str], seconds: float, stop: threading.Event
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._api.connect(seconds)
        self._connection = connection
        try:
            if stop.is_set():  # checked after `interrupt` can reach the connection
                raise ConnectionAbortedError
            connection.request("GET", f"{self._path}?{urlencode(wanted)}", headers=self._api.headers())
            response = connection.getresponse()
            if response.status == _GONE:
                raise _Gone
            if response.status != http.client.OK:
                raise SourceAway(
                    f"the Kubernetes API answers {response.status} for {self._path}{self._remedy(response.status)}"
                )
            yield response
        finally:
            self._connection = None
            connection.close()

    def _remedy(self, status: int) -> str:
        group = self._group.partition("/")[0]
        named = f"{self._resource} of {group}" if group else self._resource
        if status == http.client.NOT_FOUND:
            return f"; install what serves {named}"
        if status not in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            return ""
        return f"; let the service account get, list and watch {named}"


def _own_url() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SourceAway("this is not a pod of Kubernetes; set TOLLKEEPER_KUBERNETES_URL")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def check_api(api: KubernetesApi) -> None:
    """Raise ConfigurationError if the URL of the API server is unusable."""
    if api.url and (urlsplit(api.url).scheme not in ("http", "https") or not urlsplit(api.url).hostname):
        raise ConfigurationError(f"TOLLKEEPER_KUBERNETES_URL is {api.url!r}; give https://HOST:PORT")
