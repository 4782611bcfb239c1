"""Parses and checks the tool definitions of an MCP server; unusable ones are left out."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

MAX_TOOLS: Final = 1000  # per server
MAX_DEFINITION_BYTES: Final = 64 * 1024
FINGERPRINT_LENGTH: Final = 32  # hexadecimal digits
MAX_LIST_BYTES: Final = 8 * 1024 * 1024  # of all definitions of one server together
_MAX_DEPTH: Final = 32
_MAX_NAME: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HEADER_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_KINDS: Final = ("string", "integer", "boolean")
_ANNOTATION: Final = "x-mcp-header"

_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode  # independent of the order of fields


class ToolDefinition(msgspec.Struct, frozen=True):
    """One tool. `fields` is the definition without its name, `encoded` all of it as JSON.

    `headers` are the arguments that are also sent as headers. `fingerprint` changes with any part of the definition.
    """

    name: str
    fields: dict[str, Any]
    headers: tuple[tuple[str, tuple[str, ...]], ...] = ()  # header name, path of property names
    output: dict[str, Any] | None = None  # the schema of its structured results
    encoded: bytes = b"{}"
    fingerprint: str = ""


class UnusableTool(Exception):
    """A definition that is left out, with the reason."""


def is_tool_word(name: str) -> bool:
    """Return whether a tool may have this name."""
    return _NAME.fullmatch(name) is not None


def read_definition(given: object) -> ToolDefinition:
    """Return the tool of a server's definition. Raises UnusableTool if clients could not use it."""
    if not isinstance(given, dict):
        raise UnusableTool("it is not an object")
    name = given.get("name")
    if not isinstance(name, str) or not is_tool_word(name):
        raise UnusableTool(f"its name is not 1 to {_MAX_NAME} letters, digits, '_', '-' and '.'")
    if len(_encode(given)) > MAX_DEFINITION_BYTES:
        raise UnusableTool(f"its definition has more than {MAX_DEFINITION_BYTES} bytes")
    schema = given.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UnusableTool("its inputSchema is no JSON Schema of type object")
    output = given.get("outputSchema")
    if output is not None and not isinstance(output, dict):
        raise UnusableTool("its outputSchema is no JSON Schema")
    for one in (schema, output):
        _check_schema(one, 0)
    for field, kind in (("description", str), ("title", str), ("annotations", dict)):
        if given.get(field) is not None and not isinstance(given[field], kind):
            raise UnusableTool(f"its {field} has the wrong type")
    fields = {key: value for key, value in given.items() if key not in ("name", "execution")}
    encoded = _encode_sorted({"name": name, **fields})
    fingerprint = sha256(encoded).hexdigest()[:FINGERPRINT_LENGTH]
    return ToolDefinition(name, fields, tuple(_mirrored(schema)), output, encoded, fingerprint)


def broken_promise(definition: ToolDefinition, result: dict[str, Any]) -> str:
    """Return how a result violates the tool's output schema; empty if its first level does not.

    Deeper levels are not checked: the schema is the server's, and a full check may take unbounded time.
    """
    schema = definition.output
    if schema is None or result.get("isError") is True or result.get("resultType") == "input_required":
        return ""
    if "structuredContent" not in result:
        return "it has no structuredContent"
    content = result["structuredContent"]
    if not _is_of(content, schema.get("type")):
        return f"its structuredContent is not of type {schema.get('type')!r}"
    return _broken_within(content, schema) if isinstance(content, dict) else ""


def _broken_within(content: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return which field is missing or has the wrong type; empty if none."""
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    missing = [name for name in names if name not in content]
    if missing:
        return f"its structuredContent has no {str(missing[0])[:60]!r}"
    properties = schema.get("properties")
    for name, value in content.items():
        said = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(said, dict) and not _is_of(value, said.get("type")):
            return f"{str(name)[:60]!r} in its structuredContent is not of type {said.get('type')!r}"
    return ""


def _check_schema(part: object, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise UnusableTool(f"its schema is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
                raise UnusableTool("its schema refers to another document")
            _check_schema(value, depth + 1)
    elif isinstance(part, list):
        for value in part:
            _check_schema(value, depth + 1)


def _mirrored(schema: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the arguments that are sent as headers. Raises UnusableTool if an annotation violates the protocol."""
    seen: set[str] = set()
    reachable = 0
    for name, path, said in _reachable(schema, ()):
        reachable += 1
        if not isinstance(name, str) or _HEADER_TOKEN.fullmatch(name) is None or name.lower() in seen:
            raise UnusableTool(f"{_ANNOTATION} is not a header name, or is given twice")
        if said.get("type") not in _HEADER_KINDS:
            raise UnusableTool(f"{_ANNOTATION} stands at a property that is not a string, integer or boolean")
        seen.add(name.lower())
        yield name, path
    if _annotations_in(schema) != reachable:
        raise UnusableTool(f"{_ANNOTATION} stands where no header can be made from")


def _reachable(
    schema: dict[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[object, tuple[str, ...], dict[str, Any]]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, said in properties.items():
        if isinstance(said, dict):
            if _ANNOTATION in said:
                yield said[_ANNOTATION], (*path, name), said
            yield from _reachable(said, (*path, name))


def _annotations_in(part: object, *, is_names: bool = False) -> int:
    """Count annotations. Keys below `properties` are property names, one of which may be spelt like an annotation."""
    if isinstance(part, list):
        return sum(_annotations_in(value) for value in part)
    if not isinstance(part, dict):
        return 0
    own = 0 if is_names else int(_ANNOTATION in part)
    return own + sum(
        _annotations_in(value, is_names=not is_names and name == "properties") for name, value in part.items()
    )


def _is_of(value: object, kind: object) -> bool:
    """Return whether a value has a schema's type; true if the schema has no type or an unknown one."""
    if isinstance(kind, list):
        return any(_is_of(value, one) for one in kind)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) or (isinstance(value, float) and value % 1 == 0)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    known = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    return not isinstance(kind, str) or kind not in known or isinstance(value, known[kind])
