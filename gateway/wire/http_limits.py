"""Limits of one client connection."""

from dataclasses import dataclass, field
from typing import Final

from backends.network.connection_table import ConnectionLimits
from backends.network.head_limits import HEADER_BYTES, HEADER_COUNT, HeadLimits
from backends.network.host_names import HostNames
from contracts.errors import BodyTooLarge, HeadersTooLarge, Unavailable

# Headers whose repetition would let two readers of one request see different requests.
ONLY_ONCE: Final = {
    b"host": "Host",
    b"authorization": "Authorization",
    b"x-api-key": "X-Api-Key",
    b"api-key": "Api-Key",
    b"content-type": "Content-Type",
    b"transfer-encoding": "Transfer-Encoding",
}


class Buffered:
    """Counts the bytes of large bodies in all connections, from their arrival to the end of their answers."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one connection. Sizes in bytes, times in seconds. `hosts`: `None` allows every name."""

    header_bytes: int = HEADER_BYTES
    header_count: int = HEADER_COUNT
    body_bytes: int = 32 * 1024 * 1024
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    write_seconds: float = 60.0
    connections: ConnectionLimits = ConnectionLimits(10_000, 2_500)
    hosts: HostNames | None = None
    buffered_bytes: int = 1 << 30  # of large bodies, of all connections
    buffered: Buffered = field(default_factory=Buffered, compare=False)

    def headers_too_large(self) -> HeadersTooLarge:
        """Return the error for a head above `header_bytes`."""
        return HeadLimits(self.header_bytes, self.header_count).too_large()

    def too_many_headers(self) -> HeadersTooLarge:
        """Return the error for more headers than `header_count`."""
        return HeadLimits(self.header_bytes, self.header_count).too_many()

    def no_room(self) -> Unavailable:
        """Return the error for a large body if other requests' bodies take all the memory that is allowed."""
        return Unavailable(
            f"the gateway holds {self.buffered.size} bytes of large request bodies; the limit is "
            f"{self.buffered_bytes}, which TOLLKEEPER_MAX_BUFFERED_BYTES sets; send the request again later",
            code="overloaded",
            retry_after_seconds=1.0,
        )

    def body_too_large(self, size: int) -> BodyTooLarge:
        """Return the error for a body of this many bytes, or more."""
        return BodyTooLarge(
            f"the body has {size} bytes or more; the limit is {self.body_bytes}, which TOLLKEEPER_MAX_BODY_BYTES sets"
        )
