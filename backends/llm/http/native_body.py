"""Request bodies for servers that speak the client's own API: the client's bytes, except fields that a rule changes."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from contracts.api.chat import ReasoningEffort
from contracts.api.native import OUTPUT_FIELDS, NativeApi, NativeBody

LEAST_BUDGET: Final = 1024  # the smallest `budget_tokens` that Anthropic takes

_BLANKS: Final = b" \t\n\r"
_BLANK: Final = re.compile(rb"[ \t\n\r]*")
_NAME: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
# Fields that a route may set, with their names in each API. Fields that an API lacks are left out.
_SETTINGS: Final[Mapping[NativeApi, Mapping[str, str]]] = {
    "messages": {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop_sequences"},
    "responses": {"temperature": "temperature", "top_p": "top_p"},
    "gemini": {"temperature": "temperature", "top_p": "topP", "top_k": "topK", "stop": "stopSequences"},
}
_MOST: Final = ("high", "xhigh", "max")

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode
_any: Final = msgspec.json.Decoder().decode


class EditedBody:
    """A JSON object whose top-level fields can be set; all other bytes stay unchanged."""

    def __init__(self, body: bytes, fields: Mapping[str, msgspec.Raw] | None = None) -> None:
        """`fields` are the body's fields if it has been parsed. Raises msgspec.DecodeError if it is not a
        JSON object.
        """
        self._body = body
        self._fields = _decode(body) if fields is None else fields
        self._edits: dict[str, bytes] = {}

    def get(self, name: str) -> object:
        """Return a field's value; `None` if it is absent or null."""
        if name in self._edits:
            return _any(self._edits[name])
        raw = self._fields.get(name)
        return None if raw is None else _any(raw)

    def set(self, name: str, value: object) -> None:
        """Set a field, unless it has this value."""
        if self.get(name) != value:
            self._edits[name] = _encode(value)

    def encoded(self) -> bytes:
        """Return the body. A field that the client gave twice is sent once, with the value that the gateway read."""
        if not self._edits and self._is_compact():
            return self._body
        spans = _spans(self._body, self._fields)
        if spans is None:
            kept = {name: bytes(value) for name, value in self._fields.items()} | self._edits
            return _encode({name: msgspec.Raw(value) for name, value in kept.items()})
        body, done = b"", 0
        for name, (start, end) in spans.items():
            if name in self._edits:
                body += self._body[done:start] + self._edits[name]
                done = end
        body += self._body[done:]
        for name, value in self._edits.items():
            if name not in spans:
                before, _, after = body.rpartition(b"}")
                comma = b"" if before.rstrip(b" \t\n\r").endswith(b"{") else b","
                body = before + comma + _encode(name) + b":" + value + b"}" + after
        return body

    def _is_compact(self) -> bool:
        """Return whether the fields account for the body's whole length: no repeated names and no whitespace."""
        size = 1  # the brace; then each name in quotes, a colon, the value, and a comma or brace
        for name, value in self._fields.items():
            size += len(name) + memoryview(value).nbytes + 4
        return size == len(self._body)


def repeats_a_field(body: bytes) -> bool:
    """Return whether a JSON object has a top-level name twice. Raises msgspec.DecodeError if it is not a
    JSON object.
    """
    fields = _decode(body)
    return bool(fields) and _spans(body, fields) is None


def _spans(body: bytes, fields: Mapping[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """Return the start and end of each field's value; `None` if a name occurs twice."""
    spans: dict[str, tuple[int, int]] = {}
    place = _after_blank(body, 0) + 1  # behind the brace
    for name, value in fields.items():
        compact = b'"%b":' % name.encode("utf-8", "surrogatepass")
        if body.startswith(compact, place) and body[place + len(compact)] not in _BLANKS:  # as most SDKs write it
            start = place + len(compact)
        else:
            found = _NAME.match(body, _after_blank(body, place))
            if found is None or _any(found.group()) != name:
                return None
            start = _after_blank(body, _after_blank(body, found.end()) + 1)
        raw = bytes(value)
        end = start + len(raw)
        if not body.startswith(raw, start):
            return None
        spans[name] = (start, end)
        place = end + 1 if body.startswith(b",", end) else _after_blank(body, end) + 1  # behind the comma or brace
    return spans if fields and _after_blank(body, place) == len(body) else None


def _after_blank(body: bytes, place: int) -> int:
    found = _BLANK.match(body, place)
    return place if found is None else found.end()


class Edits:
    """The gateway's changes to a request, as in ModelCall: fields of the route, and limits on the answer."""

    __slots__ = ("max_output", "max_thinking", "reasoning_effort", "set_fields")

    def __init__(
        self,
        set_fields: Mapping[str, object] | None = None,
        max_output: int | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        max_thinking: int | None = None,
    ) -> None:
        self.set_fields = set_fields
        self.max_output = max_output
        self.reasoning_effort = reasoning_effort
        self.max_thinking = max_thinking


NO_EDITS: Final = Edits()


def native_body(edits: Edits, native: NativeBody, model: str) -> bytes:
    """Return the body to send: unchanged, except for the model's name and what a rule changes."""
    body = EditedBody(native.body, native.fields)
    if native.api == "gemini":
        _edit_gemini(body, edits)
        return body.encoded()
    body.set("model", model)
    for name, value in (edits.set_fields or {}).items():
        own = _SETTINGS[native.api].get(name)
        if own is not None:
            body.set(own, [value] if own == "stop_sequences" and isinstance(value, str) else value)
    _limit(body, edits, OUTPUT_FIELDS[native.api])
    if native.api == "messages":
        _bound_thinking(body, edits)
    elif edits.reasoning_effort is not None:
        reasoning = body.get("reasoning")
        body.set("reasoning", {**(reasoning if isinstance(reasoning, dict) else {}), "effort": edits.reasoning_effort})
    return body.encoded()


def renamed_embedding(body: bytes, model: str) -> bytes:
    """Return the body of embedContent or batchEmbedContents with the model's name replaced everywhere."""
    edited = EditedBody(body)
    name = model if model.startswith("models/") else f"models/{model}"
    if edited.get("model") is not None:
        edited.set("model", name)
    requests = edited.get("requests")
    if isinstance(requests, list):
        edited.set("requests", [{**one, "model": name} if isinstance(one, dict) else one for one in requests])
    return edited.encoded()


def _edit_gemini(body: EditedBody, edits: Edits) -> None:
    """Apply `edits`. In this API they go into `generationConfig`; the model's name is in the path."""
    name = "generationConfig" if body.get("generation_config") is None else "generation_config"
    given = body.get(name)
    config = dict(given) if isinstance(given, dict) else {}
    _set_gemini_fields(config, edits.set_fields or {}, edits.max_output)
    if edits.reasoning_effort is not None or edits.max_thinking is not None:
        asked = config.pop("thinking_config", None) or config.get("thinkingConfig")
        config["thinkingConfig"] = _gemini_thinking(asked if isinstance(asked, dict) else {}, edits)
    if config or isinstance(given, dict):
        body.set(name, config)


def _set_gemini_fields(config: dict[str, object], set_fields: Mapping[str, object], max_output: int | None) -> None:
    """Set a route's fields, and the lowest of the limits on the answer's length."""
    for field, value in set_fields.items():
        own = _SETTINGS["gemini"].get(field)
        if own is not None:
            config[own] = [value] if field == "stop" and isinstance(value, str) else value
    stated = config.pop("max_output_tokens", None)
    limits = [config.get("maxOutputTokens"), stated, set_fields.get("max_tokens"), max_output]
    known = [one for one in limits if isinstance(one, int)]
    if known:
        config["maxOutputTokens"] = min(known)


def _gemini_thinking(asked: dict[str, object], edits: Edits) -> dict[str, object]:
    """Return the `thinkingConfig`: the effort replaces the request's, within the key's cap on reasoning tokens."""
    thinking = dict(asked)
    budget = thinking.get("thinkingBudget", thinking.pop("thinking_budget", None))
    if edits.reasoning_effort is not None:
        thinking.pop("thinkingBudget", None)
        if edits.reasoning_effort == "none":
            budget = 0
        else:
            thinking["thinkingLevel"] = "HIGH" if edits.reasoning_effort in _MOST else edits.reasoning_effort.upper()
            budget = None
    if edits.max_thinking is not None and edits.reasoning_effort != "none":
        budget = min(budget, edits.max_thinking) if isinstance(budget, int) and budget >= 0 else edits.max_thinking
    if budget is not None:
        thinking.pop("thinkingLevel", None)
        thinking["thinkingBudget"] = budget
    return thinking


def _limit(body: EditedBody, edits: Edits, field: str) -> None:
    stated = body.get(field)
    set_by_route = (edits.set_fields or {}).get("max_tokens")
    limits = [one for one in (stated, set_by_route, edits.max_output) if isinstance(one, int)]
    if limits and min(limits) != stated:
        body.set(field, min(limits))


def _bound_thinking(body: EditedBody, edits: Edits) -> None:
    """Limit thinking to the key's effort and cap, and to less than max_tokens."""
    effort = edits.reasoning_effort
    if effort == "none":
        body.set("thinking", {"type": "disabled"})
    elif effort is not None:
        output = body.get("output_config")
        told = "low" if effort == "minimal" else effort
        body.set("output_config", {**(output if isinstance(output, dict) else {}), "effort": told})
    thinking, limit = body.get("thinking"), body.get("max_tokens")
    if not isinstance(thinking, dict) or thinking.get("type") not in ("enabled", "adaptive"):
        return
    asked = thinking.get("budget_tokens")
    bounds = [one for one in (asked, edits.max_thinking) if isinstance(one, int)]
    if isinstance(limit, int) and isinstance(asked, int):
        bounds.append(limit - 1)
    if not bounds or min(bounds) == asked:
        return
    least = min(bounds)
    if least < LEAST_BUDGET:
        body.set("thinking", {"type": "disabled"})
    else:
        shown = {"display": thinking["display"]} if "display" in thinking else {}
        body.set("thinking", {"type": "enabled", "budget_tokens": least, **shown})
