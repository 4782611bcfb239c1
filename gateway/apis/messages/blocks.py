"""The content blocks of a message, found in a chat's deltas as they arrive: thoughts, texts and calls, in order."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from contracts.api.generation import Delta
from contracts.errors import UpstreamBroken

Kind = Literal["thinking", "redacted_thinking", "text", "tool_use"]

UNPARSED: Final = "unparsed_arguments"  # the field that holds arguments which are no JSON object


class _CallFunction(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _CallFunction = _CallFunction()


class _Thought(msgspec.Struct, frozen=True):
    type: str = ""
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


_pieces: Final = msgspec.json.Decoder(list[_CallPiece])
_thoughts: Final = msgspec.json.Decoder(list[_Thought])
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Block:
    """One block while it is assembled. `call_id` and `name` belong to a tool call.

    `signature` belongs to a thought. An encrypted thought, which only its provider can read, consists of it alone.
    """

    __slots__ = ("call_id", "index", "kind", "name", "pieces", "signature")

    def __init__(self, index: int, kind: Kind, call_id: str = "", name: str = "") -> None:
        self.index = index
        self.kind = kind
        self.call_id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.signature = ""

    def rendered(self) -> dict[str, object]:
        """Return a complete block in the API's shape."""
        text = "".join(self.pieces)
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": text, "signature": self.signature}
        if self.kind == "redacted_thinking":
            return {"type": "redacted_thinking", "data": self.signature}
        if self.kind == "text":
            return {"type": "text", "text": text}
        return {"type": "tool_use", "id": self.call_id, "name": self.name, "input": _input_of(text)}


class BlockFinder:
    """Assigns each piece of an answer to a block; a block is new if its index has not occurred before."""

    def __init__(self, call_prefix: str, *, shows_thinking: bool) -> None:
        self._call_prefix = call_prefix  # of the ids that calls get which have none
        self._shows_thinking = shows_thinking
        self._made = 0
        self._current: Block | None = None
        self._calls: dict[int, Block] = {}  # by their place among the calls
        self._unnamed: dict[int, tuple[str, str]] = {}  # id and arguments of calls that have no name yet

    @property
    def has_calls(self) -> bool:
        """Return whether a tool was called."""
        return bool(self._calls)

    def pieces(self, delta: Delta) -> Iterator[tuple[Block, str]]:
        """Yield the pieces of a delta. Raises UpstreamBroken on invalid tool calls."""
        if self._shows_thinking:
            if delta.thinking_blocks:
                yield from self._of_thoughts(delta)
            elif delta.reasoning:
                yield self._block("thinking"), delta.reasoning
        if delta.text or delta.refusal:
            yield self._block("text"), delta.text + delta.refusal
        if delta.tool_calls:
            yield from self._of_calls(delta.tool_calls)

    def _block(self, kind: Kind) -> Block:
        current = self._current
        if current is None or current.kind != kind or current.signature:
            current = self._new(kind)
        return current

    def _of_thoughts(self, delta: Delta) -> Iterator[tuple[Block, str]]:
        """Yield thoughts with their signatures, which end them; they repeat the delta's reasoning text."""
        try:
            thoughts = _thoughts.decode(delta.thinking_blocks)
        except msgspec.MsgspecError:
            thoughts = [_Thought(thinking=delta.reasoning)]  # not ours to judge: the text is there as well
        if delta.reasoning and not any(thought.thinking for thought in thoughts):
            yield self._block("thinking"), delta.reasoning
        for thought in thoughts:
            if thought.type == "redacted_thinking":
                block = self._new("redacted_thinking")
                block.signature = thought.data or ""
                yield block, ""
            elif thought.thinking or thought.signature:
                block = self._block("thinking")
                block.signature = thought.signature or ""
                yield block, thought.thinking or ""

    def _new(self, kind: Kind, call_id: str = "", name: str = "") -> Block:
        self._current = block = Block(self._made, kind, call_id, name)
        self._made += 1
        return block

    def _of_calls(self, calls: bytes) -> Iterator[tuple[Block, str]]:
        try:
            found = _pieces.decode(calls)
        except msgspec.MsgspecError as error:
            raise UpstreamBroken("the target sent tool calls that cannot be read") from error
        for piece in found:
            place, function = piece.index or 0, piece.function
            block, arguments = self._calls.get(place), function.arguments or ""
            if block is not None and not (piece.id and piece.id != block.call_id):
                yield block, arguments
                continue
            # A new call: also at a place that had one, where another id comes, as from servers that count no places.
            call_id, held = self._unnamed.pop(place, ("", ""))
            call_id, arguments = piece.id or call_id, held + arguments
            if not function.name:
                self._unnamed[place] = (call_id, arguments)
                continue
            block = self._new("tool_use", call_id or f"{self._call_prefix}_{self._made}", function.name)
            self._calls[place] = block
            yield block, arguments


def _input_of(arguments: str) -> msgspec.Raw | dict[str, str]:
    """Return a call's arguments as an object; if they are not an object, one that contains their text."""
    if not arguments.strip():
        return {}
    try:
        _objects.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {UNPARSED: arguments}
    return msgspec.Raw(arguments.encode())
