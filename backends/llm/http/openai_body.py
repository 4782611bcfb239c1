"""Request bodies for OpenAI-compatible servers: the caller's bytes, changed only if needed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from backends.llm.base import ModelCall
from contracts.api.chat import ChatRequest, GenerationRequest, ReasoningEffort, TranslatedChat
from contracts.api.completion import CompletionRequest

# "thinking": Anthropic's `budget_tokens`, "reasoning": OpenRouter's `max_tokens`; the others are top-level fields of
# vLLM and of Qwen's API.
ThinkingCapField = Literal["", "thinking", "reasoning", "thinking_token_budget", "thinking_budget"]
_LEAST_BUDGET: Final = 1024  # the smallest `budget_tokens` that Anthropic takes

_LIMIT_FIELDS: Final = ("max_tokens", "max_completion_tokens")
_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder: Final = msgspec.json.Encoder()
_USAGE_END: Final = b',"stream_options":{"include_usage":true}}'


@dataclass(frozen=True, slots=True)
class BodyFields:
    """How one server expects certain fields.

    `model` is its name for the model; empty: the caller's. `output_limit` is the field for an output limit if the
    caller set none: all servers accept `max_tokens`, except OpenAI's own for its reasoning models.
    `sends_reasoning_effort`: models without reasoning may refuse an effort. `sends_priority`: vLLM refuses a priority
    unless it was started with `--scheduling-policy priority`. `sends_cache_control`: whether marks of a chat in
    Anthropic's format (`cache_control`, `thinking_blocks`) are sent, as LiteLLM understands them. `thinking_cap_field`
    is the field for a cap on reasoning tokens; empty: none.
    """

    model: str = ""
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    sends_priority: bool = False
    sends_cache_control: bool = False
    thinking_cap_field: ThinkingCapField = ""


class _Body:
    """A request's fields. If none is changed, the original bytes are sent."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._fields = _fields_decoder.decode(body)
        self._is_changed = False

    def get(self, name: str) -> object:
        """Return a field's value; `None` if it is absent or null."""
        raw = self._fields.get(name)
        return None if raw is None else msgspec.json.decode(raw)

    def set(self, name: str, value: object) -> None:
        """Set a field."""
        if name not in self._fields or self.get(name) != value:
            self._fields[name] = msgspec.Raw(_encoder.encode(value))
            self._is_changed = True

    def drop(self, name: str) -> None:
        """Remove a field if it exists."""
        self._is_changed |= self._fields.pop(name, None) is not None

    def encoded(self) -> bytes:
        """Return the body."""
        return _encoder.encode(self._fields) if self._is_changed else self._body


def body_for(call: ModelCall, server: BodyFields) -> bytes:
    """Return the body to send: unchanged unless the model's name, usage reporting, a limit or the priority requires a
    change.
    """
    request = call.request
    if isinstance(request, TranslatedChat):
        call = replace(call, body=_in_its_words(request, server))
    renamed = bool(server.model) and server.model != request.model
    if not isinstance(request, GenerationRequest):
        return _without_output(call, server, renamed)
    needs_usage = request.is_streamed and not request.wants_usage
    limit = _new_limit(request, call.max_output)
    if not (renamed or limit or call.set_fields or server.sends_priority or _changes_thinking(call, server)):
        return with_usage(request, call.body) if needs_usage else call.body
    body = _Body(call.body)
    if renamed:
        body.set("model", server.model)
    if needs_usage:
        _ask_for_usage(body)
    _change_generation(body, call, request, server, limit)
    return body.encoded()


def _without_output(call: ModelCall, server: BodyFields, renamed: bool) -> bytes:
    """Return the body of a request that generates nothing, such as embeddings."""
    if not (renamed or call.set_fields):
        return call.body
    body = _Body(call.body)
    if renamed:
        body.set("model", server.model)
    if call.set_fields:
        _set_fields(body, call.set_fields, server)
    return body.encoded()


def _changes_thinking(call: ModelCall, server: BodyFields) -> bool:
    """Return whether the key limits a chat's reasoning and this server has a field for it."""
    if not isinstance(call.request, ChatRequest):
        return False
    return bool(call.reasoning_effort is not None and server.sends_reasoning_effort) or bool(
        call.max_thinking is not None and server.thinking_cap_field
    )


def _change_generation(
    body: _Body, call: ModelCall, request: GenerationRequest, server: BodyFields, limit: int | None
) -> None:
    """Apply the route's fields, the output limit, the limits on reasoning and the priority."""
    if call.set_fields:
        _set_fields(body, call.set_fields, server)
        limit = limit or _set_limit(call.set_fields)
    if limit is not None:
        _limit(body, limit, "max_tokens" if isinstance(request, CompletionRequest) else server.output_limit)
    if isinstance(request, ChatRequest):
        if call.reasoning_effort is not None and server.sends_reasoning_effort:
            _set_effort(body, call.reasoning_effort)
        if call.max_thinking is not None and server.thinking_cap_field:
            _cap_thinking(body, call.max_thinking, server.thinking_cap_field)
    if server.sends_priority:
        body.set("priority", call.priority)


def with_usage(request: GenerationRequest, body: bytes) -> bytes:
    """Return a stream's body with usage reporting switched on and nothing else changed."""
    if request.wants_usage:
        return body
    if request.stream_options is None and body.find(b"stream_options") < 0:
        return body[: body.rindex(b"}")] + _USAGE_END
    changed = _Body(body)
    _ask_for_usage(changed)
    return changed.encoded()


def _ask_for_usage(body: _Body) -> None:
    options = body.get("stream_options")
    body.set("stream_options", {**(options if isinstance(options, dict) else {}), "include_usage": True})


def _in_its_words(chat: TranslatedChat, server: BodyFields) -> bytes:
    """Return the body of a translated chat, with its generated fields named as this server expects."""
    body = _Body(chat.marked_body if server.sends_cache_control and chat.marked_body else chat.chat_body)
    if chat.reasoning_effort is not None and not server.sends_reasoning_effort:
        body.drop("reasoning_effort")
    if chat.output_limit is not None:
        for name in _LIMIT_FIELDS:
            if name != server.output_limit:
                body.drop(name)
        body.set(server.output_limit, chat.output_limit)
    return body.encoded()


def _set_fields(body: _Body, fields: Mapping[str, object], server: BodyFields) -> None:
    """Set the route's fields, except the output limit, for which servers have two names."""
    for name, value in fields.items():
        if name != "reasoning_effort":
            if name != "max_tokens":
                body.set(name, value)
        elif server.sends_reasoning_effort and not _states_effort(body):
            body.set(name, value)


def _set_limit(fields: Mapping[str, object]) -> int | None:
    limit = fields.get("max_tokens")
    return limit if isinstance(limit, int) else None


def _states_effort(body: _Body) -> bool:
    """Return whether the caller set an effort in OpenRouter's field."""
    reasoning = body.get("reasoning")
    return isinstance(reasoning, dict) and reasoning.get("effort") is not None


def _new_limit(request: GenerationRequest, max_output: int | None) -> int | None:
    """Return the output limit to send instead of the body's; `None`: leave it unchanged."""
    stated = request.stated_limits
    if not stated:  # an API's default is sent too, because servers have defaults of their own
        known = [limit for limit in (request.output_limit, max_output) if limit is not None]
        return min(known, default=None)
    # Servers differ in which of the two fields they use, so neither may exceed the limit.
    return max_output if max_output is not None and max(stated) > max_output else None


def _limit(body: _Body, max_output: int, unless_given: str) -> None:
    given = [(name, value) for name in _LIMIT_FIELDS if isinstance(value := body.get(name), int)]
    for name, value in given or [(unless_given, max_output)]:
        body.set(name, min(value, max_output))
    fewest = body.get("min_tokens")
    if isinstance(fewest, int) and fewest > max_output:
        body.set("min_tokens", max_output)


def _set_effort(body: _Body, effort: ReasoningEffort) -> None:
    """Replace the effort in every field that states one; if none does, set OpenAI's field."""
    is_stated = body.get("reasoning_effort") is not None
    variables = body.get("chat_template_kwargs")
    if isinstance(variables, dict):  # of vLLM and SGLang: variables of the chat template
        if "reasoning_effort" in variables:
            is_stated = True
            variables["reasoning_effort"] = effort
        if effort == "none" and "enable_thinking" in variables:
            variables["enable_thinking"] = False
        body.set("chat_template_kwargs", variables)
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict) and "effort" in reasoning:  # OpenRouter's
        body.set("reasoning", {**reasoning, "effort": effort})
        is_stated = True
    if not is_stated or body.get("reasoning_effort") is not None:
        body.set("reasoning_effort", effort)


def _cap_thinking(body: _Body, cap: int, field: ThinkingCapField) -> None:
    """Set a server's cap on reasoning tokens in its own field, never above what the body states."""
    if field == "thinking":
        _cap_budget(body, cap)
    elif field == "reasoning":
        stated = body.get("reasoning")
        reasoning: dict[str, object] = stated if isinstance(stated, dict) else {}
        if "none" in (reasoning.get("effort"), body.get("reasoning_effort")) or reasoning.get("enabled") is False:
            return  # reasoning is switched off
        kept = {name: value for name, value in reasoning.items() if name != "effort"}  # only one of the two is allowed
        body.set("reasoning", {**kept, "max_tokens": _least(reasoning.get("max_tokens"), cap)})
        body.drop("reasoning_effort")
    else:
        body.set(field, _least(body.get(field), cap))


def _cap_budget(body: _Body, cap: int) -> None:
    """Limit Anthropic's thinking budget. Below the API's minimum, thinking is left out."""
    thinking, effort = body.get("thinking"), body.get("reasoning_effort")
    is_asked = isinstance(thinking, dict) and thinking.get("type") != "disabled"
    if not is_asked and effort in (None, "none"):
        return
    limits = [value - 1 for name in _LIMIT_FIELDS if isinstance(value := body.get(name), int)]
    asked = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    budget = min([_least(asked, cap), *limits])  # it must be less than max_tokens
    body.drop("reasoning_effort")
    if budget < _LEAST_BUDGET:
        body.drop("thinking")
    else:
        body.set("thinking", {"type": "enabled", "budget_tokens": budget})


def _least(stated: object, cap: int) -> int:
    return min(stated, cap) if isinstance(stated, int) and stated >= 0 else cap
