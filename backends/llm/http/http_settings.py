"""Settings of a target over HTTP: protocol, timeouts, TLS, headers."""

import re
import ssl
from pathlib import Path
from typing import Final, Literal

import msgspec

from backends.http_client.http_timeouts import Timeouts
from backends.llm.http.openai_body import ThinkingCapField
from backends.network.tls import TlsFiles, client_tls
from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

# RFC 9110, section 5.6.2.
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
# Headers that the gateway sets itself, or that would change where a message ends.
_OURS: Final = frozenset(
    "accept accept-encoding connection content-encoding content-length content-type expect host keep-alive "
    "proxy-connection te traceparent tracestate trailer transfer-encoding upgrade x-request-id".split()
)
# Names of headers with credentials, whose values must be references to a file, variable or stored secret.
_SECRET: Final = re.compile(r"authorization|cookie|(^|[-_])(key|token|secret|password)s?$|apikey")
REFERENCES: Final = ("env:", "file:", "stored:", "sealed:")


class OpenAISettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that a target's settings may have. Connection settings are parsed by the functions below."""

    timeouts: object = None
    tls: object = None
    headers: object = None
    output_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    sends_priority: bool = False
    sends_cache_control: bool = False
    thinking_cap_field: ThinkingCapField | None = None  # `None`: derived from the server's address
    apis: object = None  # read by contracts/serving/native_apis.py
    unknown_fields: object = None  # read by the same
    refuses: object = None  # read, like the next two, by `http_abilities`
    takes: object = None
    paths: object = None
    billing: object = None  # read by contracts/pricing/failure_billing.py
    metrics_url: str = ""  # read by gateway/observability/metrics/upstream_metrics.py


class _Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    connect: float = 5.0
    first_token: float | None = None
    first_byte: float | None = None  # old name of first_token
    between_tokens: float | None = None
    between: float | None = None  # old name of between_tokens
    total: float = 1800.0


class TlsNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of a client's TLS files, and the name that the server's certificate must have."""

    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


def read_timeouts(spec: TargetSpec) -> Timeouts:
    """Return `settings.timeouts` in seconds. Raises ConfigurationError."""
    try:
        given = msgspec.convert(spec.settings.get("timeouts") or {}, _Timeouts)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, timeouts: {error}") from error
    first = _one_of(spec, "first_token", given.first_token, "first_byte", given.first_byte)
    between = _one_of(spec, "between_tokens", given.between_tokens, "between", given.between)
    standard = Timeouts()
    try:
        return Timeouts(
            connect=given.connect,
            first_byte=standard.first_byte if first is None else first,
            between=standard.between if between is None else between,
            total=given.total,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"target {spec.id!r}: {error.message}") from error


def read_tls(spec: TargetSpec, *, is_https: bool) -> tuple[ssl.SSLContext | None, str]:
    """Return the TLS context of `settings.tls` and the server's certificate name (empty: the URL's host).

    The context is `None` if the target is reached without TLS. Raises ConfigurationError.
    """
    tls = read_tls_names(spec, is_https=is_https)
    if tls is None:
        return None, ""
    files = TlsFiles(*(Path(name) if name else None for name in (tls.certificate, tls.key, tls.ca_file)))
    try:
        return client_tls(files), tls.server_name
    except ConfigurationError as error:
        raise ConfigurationError(f"target {spec.id!r}, tls: {error.message}") from error


def read_tls_names(spec: TargetSpec, *, is_https: bool) -> TlsNames | None:
    """Return `settings.tls` without reading its files; `None` for a target without TLS. Raises ConfigurationError."""
    given = spec.settings.get("tls")
    if not is_https:
        if given is not None:
            raise ConfigurationError(f"target {spec.id!r} has tls settings and a url without TLS; write https://")
        return None
    if isinstance(given, dict) and "verify" in given:
        raise ConfigurationError(
            f"target {spec.id!r}, tls: a server is always verified; name the authority that signed its certificate, "
            "or that certificate itself, in ca_file"
        )
    try:
        tls = msgspec.convert(given or {}, TlsNames)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, tls: {error}") from error
    if tls.key and not tls.certificate:
        raise ConfigurationError(f"target {spec.id!r}, tls: key is given without its certificate")
    return tls


def read_headers(spec: TargetSpec) -> dict[str, str]:
    """Return `settings.headers`: values, or references such as env:NAME or file:PATH. Raises ConfigurationError."""
    try:
        given = msgspec.convert(spec.settings.get("headers") or {}, dict[str, str])
    except msgspec.ValidationError as error:  # its message contains a field and a type, never a value
        raise ConfigurationError(f"target {spec.id!r}, headers: {error}") from error
    seen: set[str] = set()
    for name, value in given.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise ConfigurationError(f"target {spec.id!r}, headers: {name[:60]!r} is not a header's name")
        if lower in seen:
            raise ConfigurationError(f"target {spec.id!r}, headers: {name} is given twice")
        if lower in _OURS:
            raise ConfigurationError(f"target {spec.id!r}, headers: {name} is the gateway's own to send")
        if lower == "authorization" and spec.key_ref:
            raise ConfigurationError(f"target {spec.id!r}, headers: {name} is sent with the target's key already")
        if _SECRET.search(lower) and not value.startswith(REFERENCES):
            raise ConfigurationError(
                f"target {spec.id!r}, headers: {name} is a credential; say where it is, env:NAME or file:PATH"
            )
        seen.add(lower)
    return given


def _one_of(spec: TargetSpec, name: str, value: float | None, old_name: str, old: float | None) -> float | None:
    if value is not None and old is not None:
        raise ConfigurationError(f"target {spec.id!r}, timeouts: {name} and {old_name} are the same; give one of them")
    return old if value is None else value
