"""The texts of a request: found anywhere in its JSON, and replaced if changed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from contracts.errors import MalformedBody
from contracts.guardrails.finding import DEFINITION, Finding, Shown
from contracts.guardrails.plain_text import plain_text
from contracts.json_names import has_repeated_names
from contracts.recording.redaction import is_binary
from gateway.guardrails.screening.spelling import AS_IS, IN_JSON, Spelling, ends_quoted, stand_in

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_take_apart: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
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
    "systemInstruction": "system",
    "system_instruction": "system",
    "prompt": "user",
    "query": "user",
    "text_1": "user",
    "input": "user",
    "contents": "user",
    "content": "user",
    "requests": "user",
    "documents": "document",
    "text_2": "document",
}
_OTHER_SPELLINGS: Final[Mapping[str, str]] = {"systemInstruction": "system_instruction"}
_SPOKEN: Final[Mapping[str, str]] = {"model": "assistant"}  # roles by other names: Gemini's
_DEEPEST_ROLE: Final = 1  # below a top-level field: of a message. Further down "role" is what somebody else has written
# Fields that hold images, sound and files. A long word anywhere else is read by the model, and so it is looked at.
_BINARIES: Final = frozenset(("url", "image_url", "image", "data", "file_data", "b64_json", "audio", "src"))
_ARGUMENTS: Final = "arguments"  # of a tool's call: JSON within a text
# Fields that hold a tool's arguments or result as an object, in Anthropic's and Google's APIs. What a field of a tool's
# is called says nothing of what it holds.
TOOL_OBJECTS: Final = frozenset(("input", "args", "response", _ARGUMENTS))
# Fields of requests alone whose objects have names of the caller's.
_OWN_OBJECTS: Final = frozenset(("variables", "documents", "chat_template_kwargs"))
# Fields whose objects and lists define tools, or the shape of an answer, wherever they stand but in a tool's objects.
_DEFINING: Final = frozenset(
    (
        "tools",
        "functions",
        "tool_choice",
        "toolConfig",
        "tool_config",
        "format",
        "json_schema",
        "schema",
        "responseSchema",
        "response_schema",
        "responseJsonSchema",
        "response_json_schema",
    )
)
_PUT_ASIDE: Final = ("tools", "functions")  # at the top: what agents send with every request, and is the same each time
# What in a definition only people and models read; all else programs go by, and so it is never changed.
_WORDS: Final = frozenset(("description", "title", "$comment", "server_description"))
_SAMPLES: Final = frozenset(("default", "example", "examples", "input_examples", "inputExamples"))
_VALUES: Final = frozenset(("enum", "const"))
_NAMED_SCHEMAS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_NO_NAMES: Final[frozenset[str]] = frozenset()
# Parts of a definition: what programs go by, words and samples, values to choose from.
_FIXED: Final = 0
_SAID: Final = 1
_CHOSEN: Final = 2
_SHORTEST_NUMBER: Final = 10**8  # that may be somebody's: of nine digits
_MOST_TEXTS: Final = 100_000
_ICON: Final = re.compile(r"data:image/[a-z0-9.+-]{1,30};base64,[A-Za-z0-9+/=]*")  # however short
_NAMED: Final = re.compile(rb'"[ \t\n\r]*:')  # behind each name, and at times within a text


class _Place(msgspec.Struct, gc=False):
    """Where a text stands: in which object or list, and under which name or number.

    `named` are the objects that have it as a name.
    """

    holder: Any
    at: Any
    text: str
    spelling: Spelling
    named: list[dict[str, object]] | None = None


class RequestTexts:
    """The texts of one body. Redactions and set fields change `body`; otherwise it stays byte for byte.

    Exception: if an object has a repeated name, which parsers read differently, only what was read is passed on.
    """

    def __init__(
        self,
        body: bytes,
        names: frozenset[str] = _NAMES,
        *,
        system_field: str = "",
        role: str = "",
        puts_aside: bool = False,
    ) -> None:
        """Find the texts of a body. Raises MalformedBody, which is rare because the body was parsed before.

        `names`: fields whose values are no text for people. `system_field`: the field with the system prompt; empty if
        it is one of the messages. `role`: if given, all texts belong to a tool and have this role. `puts_aside`:
        top-level definitions of tools are not searched, but stored in `aside` as JSON.
        """
        self._body = body
        self._system_field = system_field
        self._names = _NO_NAMES if role else names
        self.is_changed = False
        self.is_cut = False  # something was taken out of a text
        self.set_fields: dict[str, object] = {}
        self.lines: list[str] = []  # that were added to the system prompt
        self.aside: dict[str, bytes] = {}
        self._places: list[_Place] = []
        self._fixed: set[str] = set()  # texts of definitions that stay as they are: each is looked at once
        self._names_of_tools: dict[str, list[dict[str, object]]] = {}  # with the objects that have them
        self._named = 0  # values that have a name
        self.shown: list[Shown] = []
        try:
            apart = _with_definitions(body) if puts_aside else None
            self.fields: Any = _decode(body) if apart is None else self._read_apart(apart)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise MalformedBody("the body cannot be read as JSON") from error
        if isinstance(self.fields, dict):
            for name, value in self.fields.items():
                before = self._named
                if name not in self.aside:
                    self._find(self.fields, name, value, role or _ROLES.get(name, ""), 0, is_free=bool(role))
                    if apart is not None:
                        self.is_changed |= _repeats_names(bytes(apart[name]), self._named - before)
            if apart is None:
                self.is_changed = _repeats_names(body, self._named + len(self.fields))

    def _read_apart(self, apart: dict[str, msgspec.Raw]) -> dict[str, object]:
        """Return the fields of a body, the definitions of tools as they are written, and put these aside."""
        given = [(name, bytes(apart[name])) for name in _PUT_ASIDE if name in apart]
        self.aside = {name: raw for name, raw in given if raw.startswith((b"[", b"{"))}
        return {name: raw if name in self.aside else _decode(raw) for name, raw in apart.items()}

    def replace_aside(self, name: str, value: bytes) -> None:
        """Replace definitions in `aside` by redacted ones (JSON)."""
        self.fields[name] = msgspec.Raw(value)
        self.is_changed = self.is_cut = True

    @property
    def body(self) -> bytes:
        """Return the body as it is now."""
        return _encode(self.fields) if self.is_changed else self._body

    @property
    def holds_token_ids(self) -> bool:
        """Return whether a part of the prompt consists of token ids, which no detector can read."""
        fields = self.fields if isinstance(self.fields, dict) else {}
        asked = [one for name in ("prompt", "input") if isinstance(one := fields.get(name), list)]
        return any(type(one) is int or (type(one) is list and int in map(type, one)) for each in asked for one in each)

    def cut(self, cuts: Mapping[int, Sequence[Finding]]) -> None:
        """Replace findings by `[kind]`. `cuts` has them by the index of the text in `shown`."""
        for number, findings in cuts.items():
            place = self._places[number]
            if place.named is None:
                place.holder[place.at] = without(place.text, findings, place.spelling)
            self.is_changed = self.is_cut = True
        for number, findings in cuts.items():  # after all values, which are found by the names that they had
            place = self._places[number]
            for holder in place.named or ():
                rename(holder, place.text, without(place.text, findings))

    def set(self, fields: Mapping[str, object]) -> None:
        """Set top-level fields, or remove those whose value is `None`."""
        self.set_fields.update(fields)
        for name, value in fields.items():
            self.aside.pop(name, None)
            if value is None:
                self.fields.pop(name, None)
            else:
                self.fields[name] = value
            self.is_changed = True

    def mark(self, line: str) -> None:
        """Add a line to the system prompt of a chat; create one if there is none."""
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
        """Add a line to a system prompt that is a separate field."""
        other = _OTHER_SPELLINGS.get(name, name)
        if other in self.fields:
            name = other
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

    def _find(self, holder: Any, at: Any, value: Any, role: str, depth: int, *, is_free: bool) -> None:
        """Find the texts of a value. `is_free`: it is a tool's, whose names may be any."""
        kind = type(value)
        if kind is str:
            if value and (is_free or at not in self._names) and not (at in _BINARIES and is_binary(value)):
                self._add(holder, at, value, role)
        elif (kind is dict or kind is list) and not is_free and at in _DEFINING:
            self._define(holder, at, value, _FIXED)
        elif kind is dict:
            self._named += len(value)
            is_free = is_free or at in TOOL_OBJECTS or at in _OWN_OBJECTS
            spoken = None if is_free or depth > _DEEPEST_ROLE else value.get("role")
            inner = _SPOKEN.get(spoken, spoken) if type(spoken) is str else role
            for name, one in value.items():
                if is_free:
                    self._name(name, value, role)
                self._find(value, name, one, inner, depth + 1, is_free=is_free)
        elif kind is list:
            is_free = is_free or at in _OWN_OBJECTS
            for number, one in enumerate(value):
                self._find(value, number, one, role, depth + 1, is_free=is_free)
        elif kind is int and value >= _SHORTEST_NUMBER:
            self._add(holder, at, str(value), role)

    def _define(self, holder: Any, at: Any, value: Any, part: int, *, are_names: bool = False) -> None:
        """Find the texts of a definition. `part` is what it is a part of; `are_names`: its names are a schema's own."""
        kind = type(value)
        if kind is str:
            if at in _BINARIES and (is_binary(value) or _ICON.fullmatch(value) is not None):
                return
            if part == _SAID:
                self._add(holder, at, value, DEFINITION)
            else:
                self._fix(value)
        elif kind is dict:
            self._named += len(value)
            for name, one in value.items():
                self._fix(name)
                inner = part if are_names or part == _SAID else _part_of(name, one, part)
                self._define(value, name, one, inner, are_names=not are_names and name in _NAMED_SCHEMAS)
        elif kind is list:
            for number, one in enumerate(value):
                self._define(value, number, one, part)
        elif kind is int and value >= _SHORTEST_NUMBER and part != _FIXED:
            if part == _SAID:
                self._add(holder, at, str(value), DEFINITION)
            else:
                self._fix(str(value))

    def _name(self, name: str, holder: dict[str, object], role: str) -> None:
        """Show a name that an object of a tool's has, unless it was shown."""
        known = self._names_of_tools.get(name)
        if known is not None:
            known.append(holder)
        elif name:
            holders = self._names_of_tools[name] = [holder]
            self._places.append(_Place(None, None, name, AS_IS, holders))
            self._show(Shown(plain_text(name), role, is_name=True))

    def _fix(self, text: str) -> None:
        """Show a text that is never changed, unless it was shown."""
        if text and text not in self._fixed:
            self._fixed.add(text)
            self._places.append(_Place(None, None, text, AS_IS))
            self._show(Shown(plain_text(text), DEFINITION, is_name=True, is_fixed=True))

    def _add(self, holder: Any, at: Any, text: str, role: str) -> None:
        spelling: Spelling = IN_JSON if at == _ARGUMENTS and role != DEFINITION else AS_IS
        self._places.append(_Place(holder, at, text, spelling))
        self._show(Shown(spelling.plain(text), role))

    def _show(self, shown: Shown) -> None:
        if len(self.shown) >= _MOST_TEXTS:
            raise MalformedBody(f"the body has more than {_MOST_TEXTS} texts")
        self.shown.append(shown)


def _part_of(name: str, value: object, part: int) -> int:
    """Return what a value of a definition is, by its name there."""
    if name in _SAMPLES or (name in _WORDS and type(value) is str):
        return _SAID
    return _CHOSEN if name in _VALUES else part


def rename(holder: dict[str, object], name: str, new: str) -> None:
    """Rename a field of an object and keep its position. If the new name is taken, choose a free one."""
    while new in holder:
        new += "_"
    given = list(holder.items())
    holder.clear()
    for each, value in given:
        holder[new if each == name else each] = value


def _with_definitions(body: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the fields of a body that defines tools, as they are written; `None` for others.

    And for a body that has a name twice at the top, or one with a colon in it: that is read as a whole.
    """
    if b'"tools"' not in body and b'"functions"' not in body:
        return None
    try:
        apart = _take_apart(body)
    except msgspec.ValidationError:
        return None
    if not any([name in apart for name in _PUT_ASIDE]):
        return None
    colons = sum([bytes(raw).count(b":") for raw in apart.values()])
    return apart if colons + len(apart) == body.count(b":") else None


def _repeats_names(body: bytes, named: int) -> bool:
    """Return whether an object of a body has a repeated name; `named` values were read from it.

    Usually the count of colons, or of those after quotes, shows that none has.
    """
    return body.count(b":") != named and len(_NAMED.findall(body)) != named and has_repeated_names(body)


def without(text: str, findings: Sequence[Finding], spelling: Spelling = AS_IS) -> str:
    """Return a text in which findings in its plain form are replaced by `[kind]`. JSON stays valid JSON."""
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
