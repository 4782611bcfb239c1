"""OTLP attributes as maps of strings, in the spelling we store, without the content of conversations."""

import json
from collections.abc import Iterable
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from contracts.names import CONTENT_ATTRIBUTES, CONTENT_EVENT_PREFIX, CONTENT_FAMILIES, OLD_SPELLINGS

MAX_ATTRIBUTES: Final = 128  # OpenTelemetry SDKs' own default limit
MAX_VALUE_CHARACTERS: Final = 4096
DROPPED_CONTENT: Final = "dropped_content"
DROPPED_ATTRIBUTES: Final = "dropped_attributes"
TRUNCATED_VALUE: Final = "truncated_value"

_Json = str | bool | int | float | None | list["_Json"] | dict[str, "_Json"]


def attribute_map(attributes: Iterable[KeyValue], noticed: list[str]) -> dict[str, str]:
    """Give attributes as strings under their current names. What is left out or cut is told in `noticed`.

    A current spelling wins over an old one of the same thing. Prompts and completions are always left out.
    """
    found: dict[str, str] = {}
    for attribute in attributes:
        key = attribute.key
        if key in CONTENT_ATTRIBUTES or CONTENT_FAMILIES.match(key):
            noticed.append(DROPPED_CONTENT)
            continue
        name = OLD_SPELLINGS.get(key, key)
        if name != key and name in found:
            continue
        if len(found) >= MAX_ATTRIBUTES and name not in found:
            noticed.append(DROPPED_ATTRIBUTES)
            continue
        value = text_of(attribute.value)
        if len(value) > MAX_VALUE_CHARACTERS:
            noticed.append(TRUNCATED_VALUE)
            value = value[:MAX_VALUE_CHARACTERS]
        found[name] = value
    return found


def event_attribute_map(event_name: str, attributes: Iterable[KeyValue], noticed: list[str]) -> dict[str, str]:
    """Give an event's attributes as `attribute_map`. A GenAI event's own ones, without a namespace, are what was said:
    `content`, `message`, `tool_calls`.
    """
    if not event_name.startswith(CONTENT_EVENT_PREFIX):
        return attribute_map(attributes, noticed)
    given = list(attributes)
    kept = [attribute for attribute in given if "." in attribute.key]
    if len(kept) < len(given):
        noticed.append(DROPPED_CONTENT)
    return attribute_map(kept, noticed)


def text_of(value: AnyValue) -> str:
    """Write a value as text: strings as they are, lists and maps as JSON, bytes as hexadecimal."""
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
