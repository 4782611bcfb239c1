"""The certificate of the data plane's port, and whether callers show one. Not compiled: it extends `ssl.SSLContext`."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from backends.network.tls import LiveContext, TlsFiles, server_context


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The listener's files. If authorities are named, clients must present a certificate signed by one of them."""

    files: TlsFiles
    handshake_seconds: float = 10.0


class ListenerContext(LiveContext):
    """The listener's certificate."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files. Raises ConfigurationError."""
        self.wants_certificates = settings.files.authorities is not None
        # Asked for and not required: who has none is told so in HTTP, and may still ask how the gateway is.
        clients: Final = "optional" if self.wants_certificates else "none"
        super().__init__(partial(server_context, settings.files, clients), settings.files)
        self.handshake_seconds = settings.handshake_seconds
