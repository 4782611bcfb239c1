"""Restricts the provider host's network connections to the hosts of its targets, for all libraries.

An audit hook of the interpreter sees every look-up and connection of Python code in any library and thread, and cannot
be removed. Native code that makes system calls itself is not restricted.
"""

import _posixsubprocess
import logging
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from backends.channels.inward import Network, is_allowed
from backends.providers.default_hosts import default_hosts

_log = logging.getLogger(__name__)

_SPAWNING: Final = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"})
_ASKING: Final = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_ASKING_BACK: Final = "socket.getnameinfo"
_SENDING: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_MOST_HOSTS: Final = 10_000


class EgressRefused(PermissionError):
    """A connection to a host that no configured target names."""


class Egress:
    """The hosts that may be connected to: those of targets, as gateways name them, and those of settings.

    A target may name an internal address itself. A host name that resolves to an internal address is refused, except in
    the networks `inward`.
    """

    def __init__(
        self, hosts: Iterable[str] = (), inward: Iterable[Network] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._patterns = tuple(host.lower() for host in hosts)
        self._inward = tuple(inward)
        self._named: set[str] = set()
        self._found: set[str] = set()  # addresses to which allowed names have resolved
        self._is_held = False
        for variable in _PROXIES:
            self._name_host(urlsplit((environment or {}).get(variable, "")).hostname)

    def name_target(self, model: str, url: str, parameters: Mapping[str, Any]) -> None:
        """Allow the hosts of a target: that of its URL, otherwise those of its provider."""
        self._name_host(urlsplit(url).hostname)
        for value in parameters.values():
            if isinstance(value, str) and "://" in value:
                self._name_host(urlsplit(value).hostname)
        if not url:
            provider = str(parameters.get("custom_llm_provider") or model.partition("/")[0])
            for host in default_hosts(provider, parameters):
                self._name_host(host)

    def hold(self) -> None:
        """Refuse all other connections from now on, in the whole process. Cannot be undone."""
        if not self._is_held:
            self._is_held = True
            look_up = socket.getaddrinfo
            socket.getaddrinfo = self._noting(look_up)
            _posixsubprocess.fork_exec = self._refuse_program  # `multiprocessing` calls it without an audit event
            sys.addaudithook(self._look)

    def check_host(self, host: str) -> None:
        """Raise EgressRefused if a host name may not be looked up."""
        name = host.lower().rstrip(".")
        if name in self._named or any(fnmatchcase(name, pattern) for pattern in self._patterns):
            return
        if name in self._found and not _is_inward(name, self._inward):
            return
        raise self._refusal(host)

    def check_address(self, address: str) -> None:
        """Raise EgressRefused if an address may not be connected to."""
        plain = address.partition("%")[0]
        if plain in self._named:
            return
        if plain in self._found and not _is_inward(plain, self._inward):
            return
        raise self._refusal(address)

    def note_found(self, host: str, addresses: Iterable[str]) -> None:
        """Record the resolved addresses of an allowed host."""
        name = host.lower().rstrip(".")
        for address in addresses:
            plain = address.partition("%")[0]
            if name == "localhost" and name in self._named:
                self._named.add(plain)  # named by a target
            if len(self._found) >= _MOST_HOSTS:
                self._found.clear()
            self._found.add(plain)

    def _name_host(self, host: str | None) -> None:
        if host and len(self._named) < _MOST_HOSTS:
            self._named.add(host.lower().rstrip("."))

    def _noting(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        def getaddrinfo(host: Any, *rest: Any, **named: Any) -> Any:
            found = look_up(host, *rest, **named)  # the hook has refused what is not allowed
            if host:
                self.note_found(_text(host), (str(each[4][0]) for each in found))
            return found

        return getaddrinfo

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ASKING:
            if arguments[0]:
                self.check_host(_text(arguments[0]))
        elif event in _SENDING:
            self._check_peer(arguments[0], arguments[1])
        elif event == _ASKING_BACK:
            self.check_address(_text(arguments[0][0]))
        elif event in _SPAWNING:
            raise self._refusal("another program")

    def _check_peer(self, asking: socket.socket, peer: Any) -> None:
        if peer is None:  # the socket is connected already
            return
        if asking.family not in (socket.AF_INET, socket.AF_INET6):
            raise self._refusal("a socket of this machine")
        self.check_address(_text(peer[0]))

    def _refuse_program(self, *arguments: Any) -> int:
        raise self._refusal("another program")

    def _refusal(self, what: str) -> EgressRefused:
        _log.warning("egress refused", extra={"host": what[:200]})
        return EgressRefused(
            1, f"the provider host may not reach {what[:200]!r}, which no target names (TOLLKEEPER_PROVIDERS_HOSTS)"
        )


def _is_inward(address: str, inward: tuple[Network, ...]) -> bool:
    try:
        return not is_allowed(ip_address(address), inward)
    except ValueError:
        return False  # a name; its addresses are checked when it is resolved


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
