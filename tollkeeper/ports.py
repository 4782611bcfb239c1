"""The TCP ports of an installation: names, defaults, environment variables, and checks whether they are free."""

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

import psutil

from contracts.errors import ConfigurationError

_HIGHEST = 65535


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports that the processes of an installation listen on."""

    gateway: int = 8080
    control: int = 8081
    analytics: int = 8082
    dashboard: int = 8501
    otlp_grpc: int = 4317
    collector: int = 4318  # OTLP/HTTP
    collector_health: int = 13133
    store_http: int = 8123
    store_native: int = 9000

    @classmethod
    def from_base(cls, base: int) -> "Ports":
        """Return consecutive ports from `base` upwards, in the order of the fields. Raises ConfigurationError."""
        count = len(fields(cls))
        highest = _HIGHEST - count + 1
        if not 1 <= base <= highest:
            raise ConfigurationError(f"--port-base {base} leaves no room for {count} ports; use 1 to {highest}")
        return cls(*range(base, base + count))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Ports":
        """Return the default ports, overridden by TOLLKEEPER_*_PORT. Raises ConfigurationError for an invalid port."""
        chosen: dict[str, int] = {}
        for name in port_names():
            text = environment.get(variable_of(name), "")
            if not text:
                continue
            if not text.isdecimal() or not 1 <= int(text) <= _HIGHEST:
                raise ConfigurationError(f"{variable_of(name)} is {text!r}; a port is a number from 1 to {_HIGHEST}")
            chosen[name] = int(text)
        return cls(**chosen)

    def names_own_store(self, store_url: str) -> bool:
        """Return whether a URL is the address of this installation's embedded store."""
        try:
            parts = urlsplit(store_url)
            port = parts.port or 80
        except ValueError:
            return False
        is_here = parts.hostname in ("127.0.0.1", "localhost")
        return parts.scheme == "http" and is_here and port == self.store_http and parts.path in ("", "/")

    def by_name(self) -> dict[str, int]:
        """Return the ports by name."""
        return {name: getattr(self, name) for name in port_names()}

    def environment(self) -> dict[str, str]:
        """Return the environment variables that set the ports of all processes."""
        return {variable_of(name): str(port) for name, port in self.by_name().items()}


def port_names() -> tuple[str, ...]:
    """Return the names of all ports, in the order in which `--port-base` numbers them."""
    return tuple(field.name for field in fields(Ports))


def variable_of(name: str) -> str:
    """Return the environment variable that sets a port."""
    return f"TOLLKEEPER_{name.upper()}_PORT"


def is_free(host: str, port: int) -> bool:
    """Return whether this process could listen on a port."""
    return _obstacle(host, port) is None


def _obstacle(host: str, port: int) -> OSError | None:
    """Return the error that keeps this process from listening on a port; `None` if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended server in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def holder_of(port: int) -> str:
    """Return the name and pid of the process that listens on a port, or "another user's process"."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):  # macOS shows other processes' sockets only to root
        return "another process"
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return _describe(connection.pid)
    return "another process"


def require_free(host: str, ports: Mapping[str, int]) -> None:
    """Raise ConfigurationError for the first port that is not available, with its owner and a remedy."""
    for name, port in ports.items():
        obstacle = _obstacle(host, port)
        if obstacle is not None and obstacle.errno != errno.EADDRINUSE:
            raise ConfigurationError(
                f"cannot listen on {host} port {port} ({name}): {obstacle.strerror}; "
                "give an address of this machine with --host, and ports that this user may open"
            ) from obstacle
        if obstacle is not None:
            raise ConfigurationError(
                f"port {port} ({name}) is in use by {holder_of(port)}; "
                f"stop it, or shift all ports with `--port-base`, such as --port-base {_free_base(host)}"
            )


def _free_base(host: str) -> int:
    count = len(port_names())
    for base in range(18080, 60000, 100):
        if all(is_free(host, port) for port in range(base, base + count)):
            return base
    return 18080


def _describe(pid: int | None) -> str:
    if pid is None:
        return "another user's process"
    if pid == os.getpid():
        return "this process"
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"
