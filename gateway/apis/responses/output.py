"""The items of an answer while a model generates them: reasoning, messages and calls, reported as events."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from contracts.api.generation import Delta
from contracts.api.responses import OfferedTool
from contracts.engine.wire import TokenLogprob
from contracts.errors import UpstreamBroken
from contracts.objects.responses import item_id
from gateway.apis.rendering import LEAST_LOGPROB

Fields = dict[str, Any]
Tell = Callable[[str, Fields], None]  # an event's type, and its fields

COMPLETED: Final = "completed"
INCOMPLETE: Final = "incomplete"
# Why a model stopped, where that leaves the answer incomplete: in OpenAI's words for it.
CUT_REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


_NO_TOOLS: Final[Mapping[str, OfferedTool]] = {}
_calls_decoder: Final = msgspec.json.Decoder(list[_CallPiece])


class Reasoning:
    """A model's reasoning, as one text."""

    def __init__(self, identifier: str, place: int, tell: Tell) -> None:
        self._at = {"item_id": identifier, "output_index": place}
        self._tell = tell
        self._text: list[str] = []
        tell("response.output_item.added", {"output_index": place, "item": self.rendered("in_progress")})
        tell("response.content_part.added", {**self._at, "content_index": 0, "part": self._part()})

    def add(self, text: str) -> None:
        """Add to the text."""
        self._text.append(text)
        self._tell("response.reasoning_text.delta", {**self._at, "content_index": 0, "delta": text})

    def close(self, status: str) -> None:
        """End the item."""
        text = "".join(self._text)
        self._tell("response.reasoning_text.done", {**self._at, "content_index": 0, "text": text})
        self._tell("response.content_part.done", {**self._at, "content_index": 0, "part": self._part()})
        place = self._at["output_index"]
        self._tell("response.output_item.done", {"output_index": place, "item": self.rendered(status)})

    def rendered(self, status: str) -> Fields:
        """Return the reasoning as an output item with this status."""
        return {
            "id": self._at["item_id"],
            "type": "reasoning",
            "summary": [],
            "content": [self._part()] if self._text else [],
            "encrypted_content": None,
            "status": status,
        }

    def _part(self) -> Fields:
        return {"type": "reasoning_text", "text": "".join(self._text)}


class _Part:
    """A part of a message: text, or a refusal."""

    def __init__(self, *, is_refusal: bool) -> None:
        self.is_refusal = is_refusal
        self.text: list[str] = []
        self.logprobs: list[Fields] = []

    def rendered(self) -> Fields:
        text = "".join(self.text)
        if self.is_refusal:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "annotations": [], "logprobs": self.logprobs, "text": text}


class Message:
    """A model's message."""

    def __init__(self, identifier: str, place: int, tell: Tell) -> None:
        self._at = {"item_id": identifier, "output_index": place}
        self._tell = tell
        self._parts: list[_Part] = []
        tell("response.output_item.added", {"output_index": place, "item": self.rendered("in_progress")})

    def add(self, text: str, logprobs: list[TokenLogprob], *, is_refusal: bool) -> None:
        """Add to the part of this kind; start a new part if the last one is of the other kind."""
        if not self._parts or self._parts[-1].is_refusal != is_refusal:
            self._close_part()
            self._parts.append(_Part(is_refusal=is_refusal))
            self._tell("response.content_part.added", {**self._here(), "part": self._parts[-1].rendered()})
        part = self._parts[-1]
        part.text.append(text)
        if is_refusal:
            self._tell("response.refusal.delta", {**self._here(), "delta": text})
            return
        found = [_logprob(token) for token in logprobs]
        part.logprobs.extend(found)
        self._tell("response.output_text.delta", {**self._here(), "delta": text, "logprobs": found})

    def close(self, status: str) -> None:
        """End the item."""
        self._close_part()
        place = self._at["output_index"]
        self._tell("response.output_item.done", {"output_index": place, "item": self.rendered(status)})

    def rendered(self, status: str) -> Fields:
        """Return the message as an output item with this status."""
        return {
            "id": self._at["item_id"],
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [part.rendered() for part in self._parts],
        }

    @property
    def text(self) -> str:
        """Return the text without refusals."""
        return "".join("".join(part.text) for part in self._parts if not part.is_refusal)

    def _here(self) -> Fields:
        return {**self._at, "content_index": len(self._parts) - 1}

    def _close_part(self) -> None:
        if not self._parts:
            return
        part = self._parts[-1].rendered()
        if self._parts[-1].is_refusal:
            self._tell("response.refusal.done", {**self._here(), "refusal": part["refusal"]})
        else:
            said = {"text": part["text"], "logprobs": part["logprobs"]}
            self._tell("response.output_text.done", {**self._here(), **said})
        self._tell("response.content_part.done", {**self._here(), "part": part})


class Call:
    """A model's call of a function."""

    def __init__(self, identifier: str, place: int, call_id: str, name: str, output: "Output") -> None:
        self._at = {"item_id": identifier, "output_index": place}
        self._tell = tell = output.tell
        self._spaced = output.spaced
        self._call_id = call_id
        self.name = name  # as the model says it
        self._arguments: list[str] = []
        tell("response.output_item.added", {"output_index": place, "item": self.rendered("in_progress")})

    def add(self, arguments: str) -> None:
        """Add to the arguments' JSON text."""
        self._arguments.append(arguments)
        self._tell("response.function_call_arguments.delta", {**self._at, "delta": arguments})

    def close(self, status: str) -> None:
        """End the item."""
        done = {**self._named(), "arguments": "".join(self._arguments)}
        self._tell("response.function_call_arguments.done", {**self._at, **done})
        place = self._at["output_index"]
        self._tell("response.output_item.done", {"output_index": place, "item": self.rendered(status)})

    def rendered(self, status: str) -> Fields:
        """Return the call as an output item with this status."""
        return {
            "id": self._at["item_id"],
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            **self._named(),
            "arguments": "".join(self._arguments),
        }

    def _named(self) -> Fields:
        tool = self._spaced.get(self.name)
        if tool is None:
            return {"name": self.name}
        return {"name": tool.function.name, "namespace": tool.namespace}


Item = Reasoning | Message | Call


class Output:
    """One answer's items, assembled from deltas. Calls stay open until the end, because their pieces may be
    interleaved.
    """

    def __init__(self, request_id: UUID, tell: Tell, spaced: Mapping[str, OfferedTool] = _NO_TOOLS) -> None:
        """Accept the request's id, the receiver of events, and the functions of namespaces (`spaced`) by their names in
        the chat.
        """
        self._request_id = request_id
        self.tell = tell
        self.spaced = spaced
        self._items: list[Item] = []
        self._statuses: dict[int, str] = {}  # of the items that have ended
        self._speaking: Reasoning | Message | None = None  # the item that the next words of its kind go to
        self._calls: dict[int, tuple[str, Call]] = {}  # by the model's own place: the id that was given, the call
        self.finish_reason: str | None = None

    def take(self, delta: Delta) -> None:
        """Add a delta. Raise UpstreamBroken on malformed tool calls."""
        if delta.reasoning:
            self._reasoning().add(delta.reasoning)
        if delta.text or delta.logprobs:
            self._message().add(delta.text, delta.logprobs, is_refusal=False)
        if delta.refusal:
            self._message().add(delta.refusal, [], is_refusal=True)
        if delta.tool_calls:
            self._take_calls(delta.tool_calls)
        if delta.finish_reason is not None:
            self.finish(delta.finish_reason)

    def finish(self, reason: str) -> None:
        """End all open items. `reason` is why the model stopped or the gateway cut the answer."""
        self.finish_reason = self.finish_reason or reason
        status = INCOMPLETE if reason in CUT_REASONS else COMPLETED
        self._end_speaking(status)
        for place, item in enumerate(self._items):
            if place not in self._statuses:
                self._close(item, status)

    def rendered(self) -> list[Fields]:
        """Return the current items."""
        return [item.rendered(self._statuses.get(place, "in_progress")) for place, item in enumerate(self._items)]

    @property
    def spoken(self) -> str | None:
        """Return the text; `None` if functions are called."""
        if any(isinstance(item, Call) for item in self._items):
            return None
        return "".join(item.text for item in self._items if isinstance(item, Message))

    def _reasoning(self) -> Reasoning:
        speaking = self._speaking
        if not isinstance(speaking, Reasoning):
            self._end_speaking(COMPLETED)
            speaking = self._speaking = Reasoning(self._next_id("rs"), len(self._items), self.tell)
            self._items.append(speaking)
        return speaking

    def _message(self) -> Message:
        speaking = self._speaking
        if not isinstance(speaking, Message):
            self._end_speaking(COMPLETED)
            speaking = self._speaking = Message(self._next_id("msg"), len(self._items), self.tell)
            self._items.append(speaking)
        return speaking

    def _end_speaking(self, status: str) -> None:
        if self._speaking is not None:
            self._close(self._speaking, status)
            self._speaking = None

    def _close(self, item: Item, status: str) -> None:
        self._statuses[self._items.index(item)] = status
        item.close(status)

    def _take_calls(self, pieces: bytes) -> None:
        try:
            found = _calls_decoder.decode(pieces)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise UpstreamBroken("the target sent tool calls that cannot be read") from error
        for piece in found:
            function = piece.function or _Function()
            call = self._call_of(piece, function.name or "")
            if function.arguments:
                call.add(function.arguments)

    def _call_of(self, piece: _CallPiece, name: str) -> Call:
        """Return the call that a piece belongs to. Some servers send no indices, or the same for every call."""
        place = piece.index
        if place is None:
            last = max(self._calls, default=-1)
            place = last if not piece.id and last >= 0 else last + 1
        given, call = self._calls.get(place, ("", None))
        if call is not None and (not piece.id or piece.id == given):
            call.name = call.name or name
            return call
        self._end_speaking(COMPLETED)
        call_id = piece.id or f"call_{self._request_id.hex}{len(self._items):04x}"
        call = Call(self._next_id("fc"), len(self._items), call_id, name, self)
        self._items.append(call)
        self._calls[place] = (piece.id or "", call)
        return call

    def _next_id(self, kind: str) -> str:
        return item_id(kind, self._request_id, len(self._items), is_output=True)


def _logprob(token: TokenLogprob) -> Fields:
    top = [_one_logprob(text, logprob) for _, text, logprob in token.top]
    return {**_one_logprob(token.text, token.logprob), "top_logprobs": top}


def _one_logprob(text: str, logprob: float) -> Fields:
    return {"token": text, "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(text.encode())}
