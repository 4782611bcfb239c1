"""W3C trace context (Recommendation, level 1): which trace a request belongs to."""

import hashlib
import re
from typing import Final

import msgspec

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_LENGTH_OF_00: Final = 55  # only later versions may append fields
_STATE: Final = re.compile(r"[\x20-\x7e\t]{1,512}")  # longer ones need not be passed on (section 3.3.1.5)
_SAMPLED: Final = 0x01
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A trace id of 16 bytes and a span id of 8 bytes; both empty if the caller sent no trace."""

    trace_id: bytes = b""
    span_id: bytes = b""
    state: str = ""  # the `tracestate` header, as it came
    is_sampled: bool = True

    @classmethod
    def parse(cls, header: str, state: str = "") -> "TraceContext":
        """Parse `traceparent` and `tracestate`. Malformed headers are ignored, as W3C Trace Context asks."""
        if not header:
            return UNTRACED
        found = _TRACEPARENT.fullmatch(header)
        if found is None or found.group(1) == "ff" or (found.group(1) == "00" and len(header) != _LENGTH_OF_00):
            return cls()
        trace_id, span_id = bytes.fromhex(found.group(2)), bytes.fromhex(found.group(3))
        if trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return cls()
        is_sampled = bool(int(found.group(4), 16) & _SAMPLED)
        return cls(trace_id, span_id, state if state and _STATE.fullmatch(state) else "", is_sampled)

    def header(self) -> str:
        """Return the `traceparent` header."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{'01' if self.is_sampled else '00'}"


UNTRACED: Final = TraceContext()


def child_span_id(parent: bytes, name: str) -> bytes:
    """Return the id of a span below `parent`: the same whenever it is asked for, so that it need not be kept."""
    return hashlib.blake2b(name.encode(), key=parent, digest_size=8).digest()


def attempt_name(number: int) -> str:
    """Return the name from which an attempt's span id is derived."""
    return f"attempt {number}"
