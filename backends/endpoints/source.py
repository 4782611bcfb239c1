"""Parse and check a target's `discover` setting: a file, a DNS SRV name, or a Kubernetes resource."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec
from contracts.serving.discovery import check_discovery, discover_of

Endpoint = tuple[str, int]  # host and port

_FORMS: Final = (
    "file:PATH, dns:NAME, dns://SERVER:PORT/NAME, kubernetes:NAMESPACE/SERVICE or .../SERVICE:PORT, "
    "or inferencepool:NAMESPACE/NAME"
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123
_SRV_NAME: Final = re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9_.])?")
_DNS_PORT: Final = 53


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file with `HOST:PORT` on each line; blank lines and text after `#` are ignored."""

    path: Path


@dataclass(frozen=True, slots=True)
class DnsSource:
    """A name with SRV records, at the system's resolver or at a server."""

    name: str
    server: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class KubernetesSource:
    """A service: the ready endpoints of its EndpointSlices, at the port of a name or the first one."""

    namespace: str
    service: str
    port: str = ""


@dataclass(frozen=True, slots=True)
class InferencePoolSource:
    """An InferencePool of Gateway API Inference Extension: its ready pods at its target ports."""

    namespace: str
    name: str


Source = FileSource | DnsSource | KubernetesSource | InferencePoolSource


def parse_source(text: str) -> Source:
    """Parse a source. Raises ConfigurationError naming the text and the supported forms."""
    kind, _, rest = text.partition(":")
    read = _READERS.get(kind)
    source = None if read is None else read(rest)
    if source is None:
        raise ConfigurationError(f"discover is {text!r}; give {_FORMS}")
    return source


def _file(rest: str) -> Source | None:
    if not rest:
        return None
    path = Path(rest)
    if not path.is_absolute():
        raise ConfigurationError(f"discover names the file {rest!r}, which is not absolute; give file:/PATH")
    return FileSource(path)


def _dns(rest: str) -> Source | None:
    if not rest.startswith("//"):
        return DnsSource(rest) if _SRV_NAME.fullmatch(rest) else None
    server, slash, name = rest[2:].partition("/")
    return DnsSource(name, parse_endpoint(server, _DNS_PORT)) if slash and _SRV_NAME.fullmatch(name) else None


def _kubernetes(rest: str) -> Source | None:
    place, _, port = rest.partition(":")
    namespace, _, service = place.partition("/")
    is_sound = _NAME.fullmatch(namespace) and _NAME.fullmatch(service) and (not port or _NAME.fullmatch(port))
    return KubernetesSource(namespace, service, port) if is_sound else None


def _inference_pool(rest: str) -> Source | None:
    namespace, _, name = rest.partition("/")
    return InferencePoolSource(namespace, name) if _NAME.fullmatch(namespace) and _NAME.fullmatch(name) else None


_READERS: Final[Mapping[str, Callable[[str], Source | None]]] = {
    "file": _file,
    "dns": _dns,
    "kubernetes": _kubernetes,
    "inferencepool": _inference_pool,
}


def check_source(spec: TargetSpec) -> None:
    """Raise ConfigurationError if a target's settings of discovery cannot be used."""
    check_discovery(spec)
    if where := discover_of(spec):
        try:
            parse_source(where)
        except ConfigurationError as error:
            raise ConfigurationError(f"target {spec.id!r}: {error.message}") from error


def parse_endpoint(text: str, default_port: int | None = None) -> Endpoint:
    """Return host and port of `HOST:PORT` or `[HOST]:PORT`. Raises ConfigurationError without quoting the text."""
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or port.endswith("]")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or any(each.isspace() or each in "/@?#" for each in host):
        raise ConfigurationError("an endpoint is HOST:PORT, with square brackets around an IPv6 address")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ConfigurationError("an endpoint has a port that is not a number within 1 to 65535")
    return host, int(port)


def shown_endpoint(endpoint: Endpoint) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
