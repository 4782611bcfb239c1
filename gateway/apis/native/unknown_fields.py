"""Removes from a request what no chat can express, for targets whose settings allow it."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from contracts.api.chat import TranslatedChat
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, NotOffered

_MOST_DROPPED: Final = 50
_UNKNOWN: Final = "unknown_parameter"
_TOOL: Final = re.compile(r"tools\[(\d+)\](?:\.type)?")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


def read_dropping(read: Callable[[str, bytes], AnyRequest], content_type: str, body: bytes) -> AnyRequest:
    """Read a request; omit, and name in `dropped`, top-level fields and tools that would be refused as unknown.

    Raises the errors of `read` for everything else, such as a value out of range.
    """
    dropped: list[str] = []
    first: InvalidRequest | None = None
    places: list[int] | None = None  # of the tools that are left, in the request
    while True:
        try:
            request = read(content_type, body)
        except InvalidRequest as error:
            if not _may_be_dropped(error) or len(dropped) >= _MOST_DROPPED:
                raise
            error.__traceback__ = None
            first = first or error
            fields = _fields.decode(body)
            tool = _TOOL.fullmatch(error.param or "")
            if tool is not None:
                tools: list[Any] = msgspec.json.decode(fields["tools"], type=list[msgspec.Raw])
                places = list(range(len(tools))) if places is None else places
                del tools[int(tool.group(1))]
                dropped.append(f"tools[{places.pop(int(tool.group(1)))}]")
                fields["tools"] = msgspec.Raw(_encode(tools))
                if not tools:
                    del fields["tools"]
            elif error.param in fields:
                dropped.append(error.param)
                del fields[error.param]
            else:
                raise
            body = _encode(fields)
            continue
        if first is None or not isinstance(request, TranslatedChat):
            return request
        names = (*request.dropped, *dropped)
        return msgspec.structs.replace(request, dropped=names, unless_dropped=first)


def _may_be_dropped(error: InvalidRequest) -> bool:
    return error.error_code == _UNKNOWN or isinstance(error, NotOffered)
