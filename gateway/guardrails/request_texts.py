"""The texts of a request: found in its JSON wherever they stand, and put back changed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from contracts.api.json_names import has_repeated_names
from contracts.errors import MalformedBody
from contracts.guardrails.finding import Finding, Shown
from contracts.recording.redaction import is_binary
from gateway.guardrails.screening.spelling import AS_IS, IN_JSON, Spelling, ends_quoted, stand_in

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
# Fields whose values are names, numbers of things, or what only their makers can read: never words.
_NAMES: Final = frozenset(
    (
        "model",
        "role",
        "type",
        "id",
        "user",
        "tool_call_id",
        "call_id",
        "tool_use_id",
        "previous_response_id",
        "encrypted_content",
        "signature",
        "detail",
        "media_type",
        "encoding_format",
        "reasoning_effort",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
    )
)
_ROLES: Final[Mapping[str, str]] = {
    "system": "system",
    "instructions": "system",
    "tools": "system",
    "prompt": "user",
    "query": "user",
    "text_1": "user",
    "input": "user",
    "documents": "document",
    "text_2": "document",
}
# Fields that hold images, sound and files. A long word anywhere else is read by the model, and so it is looked at.
_BINARIES: Final = frozenset(("url", "image_url", "image", "data", "file_data", "b64_json", "audio"))
_ARGUMENTS: Final = "arguments"  # of a tool's call: JSON within a text
# Fields that hold a tool's arguments or result as an object, in Anthropic's and Google's APIs. What a field of a tool's
# is called says nothing of what it holds.
TOOL_OBJECTS: Final = frozenset(("input", "args", "response", _ARGUMENTS))
_NO_NAMES: Final[frozenset[str]] = frozenset()
_SHORTEST_NUMBER: Final = 10**8  # that may be somebody's: of nine digits
_MOST_TEXTS: Final = 100_000
_NAMED: Final = re.compile(rb'"[ \t\n\r]*:')  # behind each name, and at times within a text


class _Place(msgspec.Struct, gc=False):
    """Where a text stands: in which object or list, and under which name or number."""

    holder: Any
    at: Any
    text: str
    spelling: Spelling


class RequestTexts:
    """The texts of one body. What is cut or set changes `body`; where nothing is, it stays byte for byte.

    So it does not if an object has a name twice, of which readers see different ones: then only what was read goes on.
    """

    def __init__(self, body: bytes, names: frozenset[str] = _NAMES, *, system_field: str = "") -> None:
        """Raises MalformedBody; a body that was read once hardly is. `names` are the fields that hold no words.

        `system_field` is where the body has its system prompt; empty: in its messages.
        """
        try:
            self.fields: Any = _decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise MalformedBody("the body cannot be read as JSON") from error
        self._body = body
        self._system_field = system_field
        self.is_changed = False
        self.is_cut = False  # something was taken out of a text
        self.set_fields: dict[str, object] = {}
        self.lines: list[str] = []  # that were added to the system prompt
        self._places: list[_Place] = []
        self._named = 0  # values that have a name
        self.shown: list[Shown] = []
        if isinstance(self.fields, dict):
            self._named = len(self.fields)
            for name, value in self.fields.items():
                self._find(self.fields, name, value, _ROLES.get(name, ""), names)
            self.is_changed = _repeats_names(body, self._named)

    @property
    def body(self) -> bytes:
        """Return the body as it is now."""
        return _encode(self.fields) if self.is_changed else self._body

    @property
    def holds_token_ids(self) -> bool:
        """Return whether a part of what the model is asked is given as token ids, which no detector can read."""
        fields = self.fields if isinstance(self.fields, dict) else {}
        asked = [one for name in ("prompt", "input") if isinstance(one := fields.get(name), list)]
        return any(type(one) is int or (type(one) is list and int in map(type, one)) for each in asked for one in each)

    def cut(self, cuts: Mapping[int, Sequence[Finding]]) -> None:
        """Put `[kind]` in the place of what was found, by the numbers of the texts in `shown`."""
        for number, findings in cuts.items():
            place = self._places[number]
            place.holder[place.at] = without(place.text, findings, place.spelling)
            self.is_changed = self.is_cut = True

    def set(self, fields: Mapping[str, object]) -> None:
        """Set top-level fields, or take out those whose value is `None`."""
        self.set_fields.update(fields)
        for name, value in fields.items():
            if value is None:
                self.fields.pop(name, None)
            else:
                self.fields[name] = value
            self.is_changed = True

    def mark(self, line: str) -> None:
        """Add a line to the system prompt of a chat, which gets one where it has none."""
        if self._system_field:
            self._mark_field(line, self._system_field)
            return
        messages = self.fields.get("messages")
        if not isinstance(messages, list):
            return
        self.lines.append(line)
        first = messages[0] if messages else None
        self.is_changed = True
        if isinstance(first, dict) and first.get("role") in ("system", "developer"):
            content = first.get("content")
            if isinstance(content, str):
                first["content"] = f"{content}\n\n{line}"
                return
            if isinstance(content, list):
                content.append({"type": "text", "text": line})
                return
        messages.insert(0, {"role": "system", "content": line})

    def _mark_field(self, line: str, name: str) -> None:
        """Add a line to a system prompt that is a field of its own."""
        told = self.fields.get(name)
        self.is_changed = True
        self.lines.append(line)
        if isinstance(told, list):
            told.append({"type": "text", "text": line})
        elif isinstance(told, dict) and isinstance(told.get("parts"), list):  # Gemini's
            told["parts"].append({"text": line})
        else:
            self.fields[name] = f"{told}\n\n{line}" if isinstance(told, str) and told else line

    def as_changed(self, other: bytes) -> bytes:
        """Return another body of the same chat with the fields and lines that were set here. Raises MalformedBody."""
        twin = RequestTexts(other)
        twin.set(self.set_fields)
        for line in self.lines:
            twin.mark(line)
        return twin.body

    def _find(self, holder: Any, at: Any, value: Any, role: str, names: frozenset[str]) -> None:
        kind = type(value)
        if kind is str:
            if value and at not in names and not (at in _BINARIES and is_binary(value)):
                self._add(holder, at, value, role)
        elif kind is dict:
            self._named += len(value)
            if at in TOOL_OBJECTS:
                names = _NO_NAMES
            spoken = value.get("role")
            inner = spoken if type(spoken) is str and "role" in names else role
            for name, one in value.items():
                self._find(value, name, one, inner, names)
        elif kind is list:
            for number, one in enumerate(value):
                self._find(value, number, one, role, names)
        elif kind is int and value >= _SHORTEST_NUMBER:
            self._add(holder, at, str(value), role)

    def _add(self, holder: Any, at: Any, text: str, role: str) -> None:
        if len(self._places) >= _MOST_TEXTS:
            raise MalformedBody(f"the body has more than {_MOST_TEXTS} texts")
        spelling: Spelling = IN_JSON if at == _ARGUMENTS else AS_IS
        self._places.append(_Place(holder, at, text, spelling))
        self.shown.append(Shown(spelling.plain(text), role))


def _repeats_names(body: bytes, named: int) -> bool:
    """Return whether an object of a body has a name twice; `named` values were read of it.

    Most often the count of colons, or of those behind quotes, says that none has.
    """
    return body.count(b":") != named and len(_NAMED.findall(body)) != named and has_repeated_names(body)


def without(text: str, findings: Sequence[Finding], spelling: Spelling = AS_IS) -> str:
    """Return a text with `[kind]` in the place of what was found in its plain form. What is JSON stays JSON."""
    left, done, is_quoted = [], 0, spelling is AS_IS
    found = sorted(findings, key=lambda one: one.start)
    spans = spelling.spans(text, [(one.start, one.end) for one in found])
    for finding, (start, end) in zip(found, spans, strict=True):
        before = text[done : max(start, done)]
        if spelling is not AS_IS:
            is_quoted = ends_quoted(before, is_quoted=is_quoted)
        end, replacement = stand_in(text, max(end, done), finding.kind, is_quoted=is_quoted)
        left += [before, replacement]
        done = end
    return "".join([*left, text[done:]])
