"""The limits on the head of a request: the same at the data plane and at every other listener."""

from dataclasses import dataclass
from typing import Final

from contracts.errors import HeadersTooLarge

HEADER_BYTES: Final = 32 * 1024
HEADER_COUNT: Final = 100


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Bytes of the request line and headers together, and the number of headers. Trailers count as headers."""

    header_bytes: int = HEADER_BYTES
    header_count: int = HEADER_COUNT

    def too_large(self) -> HeadersTooLarge:
        """Return the error for a head of more bytes."""
        return HeadersTooLarge(
            f"the request line and headers exceed {self.header_bytes} bytes, the limit that "
            "TOLLKEEPER_MAX_HEADER_BYTES sets; send fewer or shorter headers"
        )

    def too_many(self) -> HeadersTooLarge:
        """Return the error for more headers."""
        return HeadersTooLarge(
            f"the request has more than {self.header_count} headers, the limit that TOLLKEEPER_MAX_HEADER_COUNT sets; "
            "send fewer"
        )
