"""Converts OTLP attributes to maps of strings, with current names and without prompts and completions."""

import json
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from collector.rows import SUSPECT
from contracts.recording.dialects import CONTENT_EVENT_PREFIX, reading_of
from contracts.recording.names import TENANT
from contracts.recording.redaction import may_hold_secrets

MAX_ATTRIBUTES: Final = 128  # OpenTelemetry SDKs' own default limit
MAX_VALUE_CHARACTERS: Final = 4096
DROPPED_CONTENT: Final = "dropped_content"
DROPPED_ATTRIBUTES: Final = "dropped_attributes"
TRUNCATED_VALUE: Final = "truncated_value"
REDACTED_VALUE: Final = "redacted_value"
REDACTED: Final = "[redacted]"
_REMEMBERED: Final = 32_768  # only attributes of at most so many bytes are cached: at most 15 MB in total
_REMEMBERED_VALUES: Final = 256  # cached values per name
_REMEMBERED_BYTES: Final = 256
_DOUBLE: Final = struct.Struct("<d")
# Tags of KeyValue's and AnyValue's fields (opentelemetry-proto, `common/v1/common.proto`): number << 3 | wire type.
_KEY_TAG: Final = b"\x0a"
_VALUE_TAG: Final = 0x12
_STRING_TAG: Final = 0x0A
_INT_TAG: Final = 0x18
_DOUBLE_TAG: Final = 0x21

_Json = str | bool | int | float | None | list["_Json"] | dict[str, "_Json"]


class _Read(NamedTuple):
    """An attribute as stored. `notice`: name of the correction, if any; `is_dropped`: the attribute is not stored."""

    name: str
    value: str
    is_plain: bool  # the name is current and nothing was corrected
    is_current: bool
    is_dropped: bool
    notice: str


def attribute_map(attributes: Iterable[KeyValue], noticed: list[str]) -> dict[str, str]:
    """Return attributes as strings under their current names; names of corrections are appended to `noticed`.

    A current name takes precedence over a deprecated one. Prompts and completions are always dropped, values of
    credentials replaced, long values truncated. SUSPECT in `noticed` means that a value may contain a secret.
    """
    return packed_attribute_map([attribute.SerializeToString() for attribute in attributes], noticed)


def packed_attribute_map(attributes: Iterable[bytes], noticed: list[str]) -> dict[str, str]:
    """Return as `attribute_map`, for serialised attributes: each is the bytes of a valid KeyValue."""
    found: dict[str, str] = {}
    known = _MEMORY.known.get
    for packed in attributes:
        # Most attributes of a batch repeat: looking up their bytes is cheaper than parsing them.
        read = known(packed) or _MEMORY.learn(packed)
        if read[2] and len(found) < MAX_ATTRIBUTES:
            found[read[0]] = read[1]
        else:
            _weigh(read, found, noticed)
    return found


def _weigh(read: _Read, found: dict[str, str], noticed: list[str]) -> None:
    name = read.name
    if read.is_dropped:
        noticed.append(read.notice)
    elif name in found and not read.is_current:
        return
    elif len(found) >= MAX_ATTRIBUTES and name not in found:
        noticed.append(DROPPED_ATTRIBUTES)
    else:
        if read.notice:
            noticed.append(read.notice)
        if may_hold_secrets(read.value):
            noticed.append(SUSPECT)
        found[name] = read.value


class _Memory:
    """A cache of `_read` results by an attribute's bytes. The number of values per name is limited, so that unique ids
    do not fill it. When full, it is cleared.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, _Read] = {}
        self._values: dict[bytes, int] = {}  # number of cached values, by packed name
        self._names: dict[bytes, str] = {}  # names of plain attributes with too many values to cache more

    def learn(self, packed: bytes) -> _Read:
        """Parse an attribute, and cache the result if its name has few values."""
        # A name of fewer than 128 bytes; others are not cached
        key = packed[: packed[1] + 2] if len(packed) > 1 else b""
        name = self._names.get(key)
        if name is not None and (value := _short_text(packed, len(key))) is not None:
            return _Read(name, value, not may_hold_secrets(value), True, False, "")
        read = _read(KeyValue.FromString(packed))
        values = self._values.get(key, 0)
        if values < _REMEMBERED_VALUES and len(packed) <= _REMEMBERED_BYTES:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
                self._values.clear()
                self._names.clear()
            self.known[packed] = read
            self._values[key] = values + 1
        elif _is_name(key, read.name) and reading_of(read.name).is_plain and len(self._names) < _REMEMBERED:
            self._names[key] = read.name
        return read


_MEMORY: Final = _Memory()  # safe to share: `_read` is a pure function


def _is_name(key: bytes, name: str) -> bool:
    """Return whether a KeyValue has this name: protobuf allows repeated fields and overlong length encodings."""
    stated = name.encode()
    return len(stated) < 128 and key == _KEY_TAG + bytes((len(stated),)) + stated


def _short_text(packed: bytes, at: int) -> str | None:
    """Parse a value of fewer than 124 bytes that is a string, an integer or a double, as text like `text_of`.

    The value starts at `at` in the KeyValue and must be its last field. `None` for any other value or encoding.
    """
    left = len(packed) - at
    if not 4 <= left < 128 or packed[at] != _VALUE_TAG or packed[at + 1] != left - 2:
        return None
    kind = packed[at + 2]
    if kind == _STRING_TAG:
        return packed[at + 4 :].decode() if packed[at + 3] == left - 4 else None
    if kind == _DOUBLE_TAG and left == 11:
        return repr(_DOUBLE.unpack_from(packed, at + 3)[0])
    if kind == _INT_TAG and left <= 7:  # up to four bytes of seven bits; longer ones are parsed by protobuf
        number = shift = 0
        for byte in packed[at + 3 :]:
            number |= (byte & 0x7F) << shift
            shift += 7
        return str(number) if packed[-1] < 0x80 and all(byte & 0x80 for byte in packed[at + 3 : -1]) else None
    return None


def _read(attribute: KeyValue) -> _Read:
    reading = reading_of(attribute.key)
    name, is_current = reading.name, reading.is_current
    if reading.treatment == "drop":
        return _Read(name, "", False, is_current, True, DROPPED_CONTENT)
    if reading.treatment == "redact":
        return _Read(name, REDACTED, False, is_current, False, REDACTED_VALUE)
    value = text_of(attribute.value)
    if reading.values:
        value = reading.values.get(value.lower(), value)
    if len(value) > MAX_VALUE_CHARACTERS:
        return _Read(name, value[:MAX_VALUE_CHARACTERS], False, is_current, False, TRUNCATED_VALUE)
    return _Read(name, value, reading.is_plain and not may_hold_secrets(value), is_current, False, "")


def event_attribute_map(event_name: str, attributes: Iterable[KeyValue], noticed: list[str]) -> dict[str, str]:
    """Return an event's attributes by name, as `attribute_map` does, without a GenAI event's attributes that have no
    namespace (`content`, `message`, `tool_calls`), as these contain prompts or completions.
    """
    return packed_event_map(event_name, [attribute.SerializeToString() for attribute in attributes], noticed)


def packed_event_map(event_name: str, attributes: Iterable[bytes], noticed: list[str]) -> dict[str, str]:
    """Return an event's attributes as `event_attribute_map`, from serialised attributes."""
    if not event_name.startswith(CONTENT_EVENT_PREFIX):
        return packed_attribute_map(attributes, noticed)
    given = list(attributes)
    kept = [packed for packed in given if "." in KeyValue.FromString(packed).key]
    if len(kept) < len(given):
        noticed.append(DROPPED_CONTENT)
    return packed_attribute_map(kept, noticed)


def tenant_in(attributes: Iterable[KeyValue]) -> str:
    """Return the tenant in the attributes (the last one, as for their row); "" if there is none."""
    found = ""
    for attribute in attributes:
        if attribute.key == TENANT:
            found = text_of(attribute.value)
    return found


def drop_attribute(resource: Resource, name: str) -> None:
    """Remove an attribute from a resource."""
    kept = [attribute for attribute in resource.attributes if attribute.key != name]
    if len(kept) < len(resource.attributes):
        del resource.attributes[:]
        resource.attributes.extend(kept)


def text_of(value: AnyValue) -> str:
    """Convert a value to text: strings unchanged, lists and maps as JSON, bytes as hexadecimal."""
    text = value.string_value  # most values are strings; checking the kind first would double the time
    if text:
        return text
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return repr(value.double_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind is None:
        return ""
    if kind == "bytes_value":
        return value.bytes_value.hex()
    if kind not in ("array_value", "kvlist_value"):
        return ""  # a kind of a later protocol version, such as string table indices of profiles
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: AnyValue) -> _Json:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    if kind == "int_value":
        return value.int_value
    if kind == "double_value":
        return value.double_value
    if kind == "bool_value":
        return value.bool_value
    return text_of(value) if kind else None
