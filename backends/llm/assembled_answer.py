"""Assembles a whole answer from a stream's chunks, in the format in which the server would have sent it whole."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from contracts.errors import UpstreamBroken

MAX_BYTES: Final = 256 * 1024 * 1024  # of a stream's events together, as of a whole reply

_decode: Final[Callable[[bytes], object]] = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.encode
# String fields that arrive complete. Some servers repeat them in every chunk, so they are never concatenated.
_NAMES: Final = frozenset(("id", "type", "role", "index", "format", "object", "call_id"))
_PADDING: Final = "obfuscation"  # random characters in OpenAI's chunks; a whole answer has none


class AssembledAnswer:
    """Merges the chunks of one stream as they arrive. Unknown fields are merged by the type of their value."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no chunk has arrived."""
        return not self._fields and not self._choices

    def take(self, data: bytes) -> None:
        """Merge one chunk. Raises UpstreamBroken if it is invalid or the answer exceeds 256 MiB."""
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            raise UpstreamBroken(f"the target sent a stream of more than {MAX_BYTES} bytes")
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken("the target sent an event that is not a chunk of an answer") from error
        if not isinstance(chunk, dict):
            raise UpstreamBroken("the target sent an event that is not a chunk of an answer")
        choices = chunk.pop("choices", None)
        chunk.pop(_PADDING, None)
        for name, value in chunk.items():
            # Id, time and model are those of the first chunk; usage and the like are those of the last.
            is_first_wins = name in ("id", "created", "model", "object")
            if value is not None and not (is_first_wins and self._fields.get(name)):
                self._fields[name] = value
            else:
                self._fields.setdefault(name, None)
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                place = index if isinstance(index, int) else 0
                self._choices.setdefault(place, _Choice()).take(choice)

    def body(self) -> bytes:
        """Return the whole answer as JSON. Raises UpstreamBroken if no chunk arrived."""
        if self.is_empty:
            raise UpstreamBroken("the target ended its stream without an answer")
        fields = dict(self._fields)
        usage = fields.pop("usage", None)
        kind = fields.pop("object", None)
        body: dict[str, Any] = {
            "id": fields.pop("id", None),
            "object": kind.removesuffix(".chunk") if isinstance(kind, str) else "chat.completion",
            "created": fields.pop("created", None),
            "model": fields.pop("model", None),
        }
        body = {name: value for name, value in body.items() if value is not None}
        body["choices"] = [self._choices[index].whole(index) for index in sorted(self._choices)]
        if usage is not None:
            body["usage"] = usage
        return _encode({**body, **fields})


class _Choice:
    """One choice of an answer."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._is_chat = False
        self._fields: dict[str, Any] = {}
        self._texts: list[str] = []  # of a text completion
        self._pieces: list[str] = []  # of one field of the message, joined at its end
        self._piece_of = ""

    def take(self, choice: dict[str, Any]) -> None:
        delta = choice.pop("delta", None)
        choice.pop("index", None)
        if isinstance(delta, dict):
            self._is_chat = True
            if not self._is_further_text(delta):
                self._join()
                _merge(self._message, delta)
        text = choice.pop("text", None)
        if isinstance(text, str):
            self._texts.append(text)
        for name, value in choice.items():
            known = self._fields.get(name)
            if name == "logprobs" or (isinstance(known, list) and isinstance(value, list)):
                _merge(self._fields, {name: value}, numbers=False)
            elif value is not None:  # the last chunk's value counts
                self._fields[name] = value
            else:
                self._fields.setdefault(name, None)

    def _is_further_text(self, delta: dict[str, Any]) -> bool:
        """Store a delta that only continues a text; return whether it is one."""
        if len(delta) != 1:
            return False
        [(name, value)] = delta.items()
        if not isinstance(value, str) or name in _NAMES or name == "name":
            return False
        if name != self._piece_of:
            self._join()
            if not isinstance(self._message.get(name), str):
                return False
            self._piece_of = name
        self._pieces.append(value)
        return True

    def _join(self) -> None:
        if self._piece_of:
            self._message[self._piece_of] += "".join(self._pieces)
            self._piece_of, self._pieces = "", []

    def whole(self, index: int) -> dict[str, Any]:
        self._join()
        fields = dict(self._fields)
        reason = fields.pop("finish_reason", None)
        logprobs = {"logprobs": fields.pop("logprobs")} if "logprobs" in fields else {}
        made: dict[str, Any]
        if self._is_chat or not self._texts:
            made = {"index": index, "message": _message_of(self._message)}
        else:
            made = {"index": index, "text": "".join(self._texts)}
        return {**made, **logprobs, "finish_reason": reason, **fields}


def _message_of(merged: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, **merged}
    if message["role"] is None:
        message["role"] = "assistant"
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        if calls:  # in whole answers, calls have no index, and the content is null if there is no text
            message["tool_calls"] = [_without_index(call) for call in calls]
            message["content"] = message["content"] or None
        else:
            del message["tool_calls"]
    return message


def _without_index(call: Any) -> Any:
    return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


def _merge(known: dict[str, Any], more: dict[str, Any], *, numbers: bool = True) -> None:
    """Merge a chunk's fields: strings are concatenated, lists extended, objects merged; null changes nothing.

    `numbers`: a list entry with an index is merged into the entry with the same index.
    """
    for name, value in more.items():
        before = known.get(name)
        if value is None:
            known.setdefault(name, None)
        elif before is None:
            known[name] = _extended([], value, name, numbers=numbers) if isinstance(value, list) else value
        elif isinstance(before, list):
            # Mistral's reasoning models send the parts of a content, and then plain text.
            parts = [{"type": "text", "text": value}] if isinstance(value, str) else value
            known[name] = _extended(before, parts, name, numbers=numbers) if isinstance(parts, list) else value
        elif isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value, numbers=numbers)
        elif isinstance(before, str):
            known[name] = _continued(before, value, name, numbers=numbers)
        else:
            known[name] = value


def _continued(before: str, value: Any, name: str, *, numbers: bool) -> Any:
    """Return a text field's value after a chunk's value for it has been added."""
    if isinstance(value, str):
        if name in _NAMES:
            return before or value
        # Some servers repeat a function's name, a few send it in pieces.
        return before if name == "name" and value == before else before + value
    if name == "content" and isinstance(value, list):
        first = [{"type": "text", "text": before}] if before else []
        return _extended(first, value, name, numbers=numbers)
    return value


def _extended(known: list[Any], more: list[Any], name: str, *, numbers: bool) -> list[Any]:
    """Append entries to a list, or merge them into the entries that they continue; return the list."""
    for entry in more:
        target = _entry_of(known, entry, name) if numbers and isinstance(entry, dict) else None
        if target is None:
            known.append(entry)
        else:
            _merge(target, entry)
    return known


def _entry_of(known: list[Any], entry: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the entry that a piece continues: the one with the same index and, if stated, the same id."""
    index, own = entry.get("index"), entry.get("id")
    last = known[-1] if known and isinstance(known[-1], dict) else None
    if isinstance(index, int):
        for one in reversed(known):
            if isinstance(one, dict) and one.get("index") == index:
                return one if not own or not one.get("id") or one["id"] == own else None
        return None
    if name == "tool_calls":  # the arguments of a call, from a server that does not number its calls
        return None if own else last
    if name in ("content", "thinking") and last is not None and last.get("type") == entry.get("type"):
        return last  # a further piece of the same part
    return None
