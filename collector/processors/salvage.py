"""Salvage readable records of a partly unreadable export request, and count the others.

All three signals have the same nesting: field 1 of a request has parts with a resource, their field 2 scopes, and
these scopes' field 2 the records. Otherwise one record with an invalid string would make the whole request unreadable.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED32: Final = 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_OWNER: Final = 1  # field of a part's resource, and of a scope's own name
_CHILDREN: Final = 2  # field of a part's scopes, and of a scope's records
_MAX_VARINT_BYTES: Final = 10


class Unframed(Exception):
    """The bytes are not a sequence of protobuf fields: truncated, or not protobuf."""


def salvage(body: bytes, part: type[Message]) -> tuple[bytes, int]:
    """Return the request without its unreadable records, and the number of these.

    `part` is the message type of field 1, such as ResourceSpans. An unreadable resource or scope is removed from its
    part. Raises Unframed if the request itself is not a sequence of fields.
    """
    classes = _Classes(part)
    kept: list[bytes] = []
    lost = 0
    for number, wire_type, raw, payload in _fields(body):
        if number != 1 or wire_type != _LENGTH_DELIMITED:
            kept.append(raw)
            continue
        part_bytes, part_lost = _salvaged(payload, classes, depth=0)
        lost += part_lost
        kept.append(_framed(1, part_bytes))
    return b"".join(kept), lost


class _Classes:
    """The message classes of resources, scopes and records."""

    def __init__(self, part: type[Message]) -> None:
        scope = class_of_field(part, _CHILDREN)
        self.owners = (class_of_field(part, _OWNER), class_of_field(scope, _OWNER))
        self.record = class_of_field(scope, _CHILDREN)


def class_of_field(message: type[Message], number: int) -> type[Message]:
    """Return the class of a field's messages."""
    descriptor = message.DESCRIPTOR.fields_by_number[number].message_type
    if descriptor is None:
        raise ValueError(f"field {number} of {message.DESCRIPTOR.name} holds no message")
    return GetMessageClass(descriptor)  # type: ignore[arg-type]  # the compiled kind of descriptor is one too


def _salvaged(payload: bytes, classes: _Classes, depth: int) -> tuple[bytes, int]:
    kept: list[bytes] = []
    lost = 0
    for number, wire_type, raw, inner in _fields(payload):
        if number == _CHILDREN and wire_type == _LENGTH_DELIMITED and depth == 0:
            try:
                scope_bytes, scope_lost = _salvaged(inner, classes, depth=1)
            except Unframed:
                lost += 1  # the number of its records is unknown
                continue
            lost += scope_lost
            kept.append(_framed(_CHILDREN, scope_bytes))
        elif number == _CHILDREN and wire_type == _LENGTH_DELIMITED:
            if _is_readable(inner, classes.record):
                kept.append(raw)
            else:
                lost += 1
        elif number != _OWNER or _is_readable(inner, classes.owners[depth]):
            kept.append(raw)
    return b"".join(kept), lost


def _is_readable(payload: bytes, kind: type[Message]) -> bool:
    try:
        kind.FromString(payload)
    except DecodeError:
        return False
    return True


def _fields(body: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield a message's fields: number, wire type, bytes with the tag, contents (if length-delimited, else b"")."""
    at, size = 0, len(body)
    while at < size:
        begin = at
        tag, at = _varint(body, at)
        wire_type = tag & 7
        payload = b""
        if wire_type == _LENGTH_DELIMITED:
            length, at = _varint(body, at)
            payload = body[at : at + length]
            at += length
        elif wire_type == _VARINT:
            _, at = _varint(body, at)
        elif wire_type in _FIXED_BYTES:
            at += _FIXED_BYTES[wire_type]
        else:
            raise Unframed
        if at > size or tag >> 3 == 0:
            raise Unframed
        yield tag >> 3, wire_type, body[begin:at], payload


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if at >= len(body):
            raise Unframed
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at
    raise Unframed


def _framed(number: int, payload: bytes) -> bytes:
    return encode_varint(number << 3 | _LENGTH_DELIMITED) + encode_varint(len(payload)) + payload


def encode_varint(value: int) -> bytes:
    """Encode a number as a protobuf varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
