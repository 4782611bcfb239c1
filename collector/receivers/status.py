"""Encodes errors as OTLP requires: a google.rpc.Status, with the retry delay in a google.rpc.RetryInfo.

Encoded field by field, which saves a dependency on generated messages.
"""

from typing import Final

from collector.processors.salvage import encode_varint
from contracts.errors import TollkeeperError

RETRY_INFO: Final = b"type.googleapis.com/google.rpc.RetryInfo"
_NANOSECONDS: Final = 1_000_000_000
# Fields of google.rpc.Status, google.protobuf.Any, google.rpc.RetryInfo and google.protobuf.Duration.
_CODE, _MESSAGE, _DETAILS = 1, 2, 3
_TYPE_URL, _VALUE = 1, 2
_RETRY_DELAY: Final = 1
_SECONDS, _NANOS = 1, 2


def status_bytes(error: TollkeeperError, code: int = 0) -> bytes:
    """Return an error as a serialised google.rpc.Status. `code` is the gRPC code; it is omitted over HTTP."""
    status = _number(_CODE, code) + _bytes(_MESSAGE, error.message.encode())
    if error.retry_after_seconds is not None:
        whole = int(error.retry_after_seconds)
        rest = int((error.retry_after_seconds - whole) * _NANOSECONDS)
        delay = _bytes(_RETRY_DELAY, _number(_SECONDS, whole) + _number(_NANOS, rest))
        status += _bytes(_DETAILS, _bytes(_TYPE_URL, RETRY_INFO) + _bytes(_VALUE, delay))
    return status


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(value)) + value
