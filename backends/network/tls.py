"""TLS contexts from PEM files, reloaded when the files change, so that renewed certificates need no restart.

Certificates are always verified; for one that no public CA signed, the operator names its CA.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from backends.processes.file_stamp import file_stamp
from contracts.errors import ConfigurationError, UpstreamUnreachable

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5  # minimum time between two checks of the files

ClientCertificates = Literal["none", "optional", "required"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side: its certificate with chain, that certificate's key, and the CAs that it trusts."""

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the paths that are set."""
        return tuple(path for path in (self.certificate, self.key, self.authorities) if path is not None)


class LiveContext(ssl.SSLContext):
    """An SSLContext that performs each handshake with the files' current content.

    Open connections are not affected. If the files are unusable, the last good content stays in use, and `fault` is the
    reason.
    """

    def __new__(cls, *_: object) -> "LiveContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)  # not used: `wrap_bio` delegates to `current`

    def __init__(
        self, build: Callable[[], ssl.SSLContext], files: TlsFiles, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Build the first context. Raises ConfigurationError with the file at fault."""
        self._build = build
        self._files = files
        self._clock = clock
        self._state = _state_of(files)
        self._looked_at = clock()
        self.current = build()
        self.fault = ""
        self.reloads = 0

    def refresh(self, *, at_once: bool = False) -> None:
        """Reload the files if they have changed. Checks them at most twice a second unless `at_once`."""
        now = self._clock()
        if not at_once and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        state = _state_of(self._files)
        if state == self._state:
            return
        self._state = state
        try:
            self.current = self._build()
        except ConfigurationError as error:
            self.fault = error.message
            _log.error("certificate not reloaded, the previous one stays in use", extra={"reason": error.message})
            return
        self.fault = ""
        self.reloads += 1
        _log.info("certificate reloaded", extra={"files": ", ".join(map(str, self._files.paths))})

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Start a handshake. Called by event loops."""
        self.refresh()
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Start a handshake. Called by blocking clients."""
        self.refresh()
        return self.current.wrap_socket(
            sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, server_hostname, session
        )


def server_tls(
    files: TlsFiles, *, clients: ClientCertificates = "none", clock: Callable[[], float] = time.monotonic
) -> LiveContext:
    """Return a listener's context for TLS 1.2 or later, which reloads its files.

    `clients`: whether clients must, may or need not present a certificate of the configured CAs. Raises
    ConfigurationError if a file is unusable.
    """

    return LiveContext(partial(server_context, files, clients), files, clock)


def server_context(files: TlsFiles, clients: ClientCertificates = "none") -> ssl.SSLContext:
    """Return a listener's context from the files' current content. Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, files)
    if clients != "none":
        _load_authorities(context, files)
        context.verify_mode = ssl.CERT_REQUIRED if clients == "required" else ssl.CERT_OPTIONAL
        context.sslobject_class = _ToldSide
    return context


def client_tls(files: TlsFiles, clock: Callable[[], float] = time.monotonic) -> ssl.SSLContext:
    """Return a client's context for TLS 1.2 or later, which verifies the server's name and chain and reloads its files.

    Without CAs of its own it trusts the system's. Raises ConfigurationError if a file is unusable.
    """

    def build() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if files.authorities is not None:
            _load_authorities(context, files)
        else:
            context.load_default_certs()
        if files.certificate is not None:
            _load_certificate(context, files)
        return context

    return LiveContext(build, files, clock) if files.paths else build()


def own_server_tls(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts exactly this certificate, under any name.

    Used by the command line for servers on this machine, which it reaches by address. Raises ConfigurationError if the
    file is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # not needed, because only this very certificate is trusted
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_authorities(context, TlsFiles(authorities=certificate))
    return context


def days_left(certificate: Path, now: float | None = None) -> float:
    """Return the number of days until a certificate expires; negative if it has expired. `now` is Unix time.

    Raises ConfigurationError if the file cannot be read.
    """
    from cryptography import x509  # here: a tenth of a second, and no server needs it for its TLS

    _require_readable(certificate)
    try:
        ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except ValueError as error:
        raise ConfigurationError(f"{certificate} holds no certificate in PEM") from error
    return (ends.timestamp() - (time.time() if now is None else now)) / 86_400


class _ToldSide(ssl.SSLObject):
    """The server's side of a connection, which logs failed handshakes: event loops close the connection without an
    error.
    """

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            _log.warning("TLS handshake refused", extra={"reason": tls_failure(error)})
            raise


def tls_refusal(place: str, error: ssl.SSLError) -> UpstreamUnreachable:
    """Return the error for a target after a failed TLS handshake."""
    return UpstreamUnreachable(f"TLS with {place} failed: {tls_failure(error)}")


def tls_failure(error: ssl.SSLError) -> str:
    """Return a short reason for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message).rstrip(".")
    return (error.reason or type(error).__name__).replace("_", " ").lower()


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    certificate, key = files.certificate, files.key
    if certificate is None:
        raise ConfigurationError("TLS needs a certificate, a PEM file, and its key")
    for path in (certificate, *((key,) if key is not None else ())):
        _require_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        named = f"{certificate}" if key is None else f"{certificate} and {key}"
        reason = "the key is not the certificate's" if error.reason == "KEY_VALUES_MISMATCH" else tls_failure(error)
        raise ConfigurationError(f"{named} cannot be used for TLS: {reason}; PEM files are needed") from error


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    path = files.authorities
    if path is None:
        raise ConfigurationError("TLS with certificates of both sides needs a PEM file of the authorities to trust")
    _require_readable(path)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigurationError(f"{path} holds no certificates to trust: {tls_failure(error)}") from error


def _require_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    # Without this callback the library would prompt at the terminal and hang.
    raise ConfigurationError("the TLS key is encrypted; a server that starts by itself needs it in plain, mode 0600")


def _state_of(files: TlsFiles) -> tuple[object, ...]:
    """Return a value that changes when a file is written or replaced."""
    return tuple(map(file_stamp, files.paths))
