"""W3C trace context (Recommendation, level 1): which trace a request belongs to."""

import re
from typing import Final

import msgspec

_TRACEPARENT: Final = re.compile(r"^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$")
_LENGTH_OF_00: Final = 55  # only later versions may append fields


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A trace id of 16 bytes and a span id of 8; both empty where the caller traces nothing."""

    trace_id: bytes = b""
    span_id: bytes = b""

    @classmethod
    def parse(cls, header: str) -> "TraceContext":
        """Read a `traceparent` header. A malformed one is ignored, as the recommendation demands."""
        if not header:
            return UNTRACED
        found = _TRACEPARENT.match(header)
        if found is None or found.group(1) == "ff" or (found.group(1) == "00" and len(header) != _LENGTH_OF_00):
            return cls()
        trace_id, span_id = bytes.fromhex(found.group(2)), bytes.fromhex(found.group(3))
        if not any(trace_id) or not any(span_id):
            return cls()
        return cls(trace_id, span_id)

    def header(self) -> str:
        """Write a `traceparent` header, sampled."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"


UNTRACED: Final = TraceContext()
