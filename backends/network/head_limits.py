"""Limits on the head of a request, the same for all listeners."""

from dataclasses import dataclass
from typing import Final

from contracts.errors import HeadersTooLarge

HEADER_BYTES: Final = 32 * 1024
HEADER_COUNT: Final = 100


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Maximum bytes of the request line and headers together, and number of headers. Trailers count as headers."""

    header_bytes: int = HEADER_BYTES
    header_count: int = HEADER_COUNT

    def too_large(self) -> HeadersTooLarge:
        """Return the error for a head above the byte limit."""
        return HeadersTooLarge(
            f"the request line and headers exceed {self.header_bytes} bytes, the limit that "
            "TOLLKEEPER_MAX_HEADER_BYTES sets; send fewer or shorter headers"
        )

    def too_many(self) -> HeadersTooLarge:
        """Return the error for too many headers."""
        return HeadersTooLarge(
            f"the request has more than {self.header_count} headers, the limit that TOLLKEEPER_MAX_HEADER_COUNT sets; "
            "send fewer"
        )
