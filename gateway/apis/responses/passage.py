"""Follow a native stream of the Responses API, and end it where the gateway cuts it."""

from typing import Any, Final

import msgspec

from backends.llm.http.sse import data_of
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from gateway.apis.responses.output import CUT_REASONS
from gateway.apis.responses.rendering import cause, response_usage
from gateway.replies.answer_facts import CalledTool, called_tool, mark_of


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
_encode: Final = msgspec.json.Encoder().encode
_CALLS: Final = ("function_call", "custom_tool_call")


class ResponsePassage:
    """One stream. Its events were read before, so they can be read."""

    def __init__(self) -> None:
        self._passed: list[bytes] = []  # to be read if the stream is cut

    def take(self, data: bytes) -> None:
        """Accept an event."""
        self._passed.append(data)

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the event that ends the stream: the response, with the items so far."""
        response: dict[str, Any] = {}
        output: list[dict[str, Any]] = []
        open_item: dict[str, Any] | None = None
        text = ""
        last = -1
        for event in [_events.decode(data_of(passed)) for passed in self._passed]:
            last = event.sequence_number
            if event.type == "response.created" and event.response is not None:
                response = event.response
            elif event.type == "response.output_item.added":
                open_item, text = event.item, ""
            elif event.type == "response.output_text.delta" and isinstance(event.delta, str):
                text += event.delta
            elif event.type == "response.output_item.done" and event.item is not None:
                output.append(event.item)
                open_item = None
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
        data = _encode({"type": "response.incomplete", "sequence_number": last + 1, "response": response})
        return b"event: response.incomplete\ndata: %b\n\n" % data

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a whole response calls; `None` if it cannot be read."""
        try:
            output = _responses.decode(body).output
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        calls = [item for item in output if item.type in _CALLS]
        return [called_tool(item.name, mark_of((item.arguments or item.input).encode())) for item in calls]
