"""Follows a native stream of the Responses API, and ends it if the gateway cuts it."""

import re
from typing import Any, Final

import msgspec

from backends.llm.http.sse import data_of
from contracts.api.answer_parts import CalledTool
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from gateway.apis.responses.output import CUT_REASONS
from gateway.apis.responses.rendering import cause, response_usage
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.translated_reply import NativeStreamTracker


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    sequence_number: int = 0
    response: dict[str, Any] | None = None
    item: dict[str, Any] | None = None
    delta: Any = None


class _Item(msgspec.Struct, frozen=True):
    type: str = ""
    name: str = ""
    arguments: str = ""  # of a function
    input: str = ""  # of a custom tool


class _Response(msgspec.Struct, frozen=True):
    output: list[_Item]


_events: Final = msgspec.json.Decoder(_Event)
_responses: Final = msgspec.json.Decoder(_Response)
_KIND: Final = re.compile(rb'"type"\s*:\s*"response\.([a-z_.]+)"')
_encode: Final = msgspec.json.Encoder().encode
_CALLS: Final = ("function_call", "custom_tool_call")
_MOST_PIECES: Final = 256  # of an item's events that are kept as they came


def _read(event: bytes) -> _Event:
    return _events.decode(data_of(event))


class ResponseStreamTracker(NativeStreamTracker):
    """One stream. Its events were read before, so they can be read."""

    def __init__(self) -> None:
        # Events to be read if the stream is cut: its begin, its whole items, and the last pieces of the open one, whose
        # earlier pieces are kept as their text. An event is dozens of times as long as the text in it.
        self._created: list[bytes] = []
        self._items: list[bytes] = []
        self._added: list[bytes] = []
        self._pieces: list[bytes] = []
        self._text: list[str] = []
        self._last: list[bytes] = []

    def take(self, data: bytes) -> None:
        """Accept an event. Pieces of an item are dropped once the item is complete."""
        found = _KIND.search(data)
        kind = b"" if found is None else found.group(1)
        self._last = [data]
        if kind == b"output_text.delta":
            self._pieces.append(data)
            if len(self._pieces) >= _MOST_PIECES:
                self._read_pieces()
        elif kind == b"output_item.added":
            self._open([data])
        elif kind == b"output_item.done":
            self._items.append(data)
            self._open([])
        elif kind == b"created":
            self._created = [data]

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the event that ends the stream: the response, with the items so far."""
        self._read_pieces()
        response: dict[str, Any] = {}
        output: list[dict[str, Any]] = []
        open_item: dict[str, Any] | None = None
        text = "".join(self._text)
        for event in map(_read, (*self._created, *self._items, *self._added)):
            if event.type == "response.created" and event.response is not None:
                response = event.response
            elif event.type == "response.output_item.added":
                open_item = event.item
            elif event.type == "response.output_item.done" and event.item is not None:
                output.append(event.item)
        if open_item is not None and open_item.get("type") == "message" and text:
            part = {"type": "output_text", "text": text, "annotations": []}
            output.append({**open_item, "status": "incomplete", "content": [part]})
        response = {
            **response,
            "status": "incomplete",
            "incomplete_details": {"reason": CUT_REASONS.get(why.ends_with, "max_output_tokens")},
            "output": output,
            "usage": response_usage(usage),
            "tollkeeper": {"ended_by": cause(why)},
        }
        last = _read(self._last[0]).sequence_number if self._last else -1
        data = _encode({"type": "response.incomplete", "sequence_number": last + 1, "response": response})
        return b"event: response.incomplete\ndata: %b\n\n" % data

    def _open(self, added: list[bytes]) -> None:
        """Start an item, or none with an empty list: the pieces of the previous one are dropped."""
        self._added, self._pieces, self._text = added, [], []

    def _read_pieces(self) -> None:
        said = "".join(event.delta for event in map(_read, self._pieces) if isinstance(event.delta, str))
        if said:
            self._text.append(said)
        self._pieces = []

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a complete response calls; `None` if it cannot be parsed."""
        try:
            output = _responses.decode(body).output
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        calls = [item for item in output if item.type in _CALLS]
        return [called_tool(item.name, mark_of((item.arguments or item.input).encode())) for item in calls]
