"""Translates a request of the Messages API to a chat: the same text, limits and tools, in JSON for targets."""

from typing import Any, Final

import msgspec
from msgspec import structs

from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import ChatRequest, ReasoningEffort, TranslatedChat
from contracts.api.ignored_fields import ignored_in
from contracts.api.messages import (
    AnyChoice,
    AutoChoice,
    BudgetedThinking,
    MessagesRequest,
    NamedChoice,
    NoThinking,
    Prompt,
    Tool,
)
from gateway.apis.messages.reading import read_messages, read_prompt
from gateway.apis.messages.turns import chat_messages, has_marks, mark_last, marked, without_marks

# Budgets of thinking tokens become efforts, which is what chats know: below the first bound low, and so on.
MEDIUM_BUDGET: Final = 4096
HIGH_BUDGET: Final = 16384

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_FORMAT_NAME: Final = "answer"

_encode: Final = msgspec.json.Encoder().encode
_chats: Final = msgspec.json.Decoder(ChatRequest)


def read_messages_as_chat(content_type: str, body: bytes) -> TranslatedChat:
    """Read the body of POST /v1/messages as a chat. Raises as `read_messages`."""
    chat = translated(read_messages(content_type, body))
    dropped = ignored_in("messages", body)
    return msgspec.structs.replace(chat, dropped=dropped) if dropped else chat


def read_prompt_as_chat(content_type: str, body: bytes) -> TranslatedChat:
    """Read the body of POST /v1/messages/count_tokens as a chat. Raises as `read_messages`."""
    return translated(read_prompt(content_type, body))


def translated(request: Prompt) -> TranslatedChat:
    """Return a request as a chat."""
    messages = chat_messages(request.system, request.messages)
    if request.cache_control is not None:
        mark_last(messages, request.cache_control)
    tools = [_tool(tool) for tool in request.loaded_tools]
    fields = _fields(request)
    plain_tools = [without_marks(tool) for tool in tools]
    plain = _body(request.model, [without_marks(message) for message in messages], plain_tools, fields)
    marks = any(map(has_marks, (*messages, *tools)))
    return TranslatedChat(
        **structs.asdict(_chats.decode(plain)),
        chat_body=plain,
        marked_body=_body(request.model, messages, tools, fields) if marks else b"",
        origin=request,
    )


def effort_of(request: Prompt) -> ReasoningEffort | None:
    """Return the reasoning effort; `None`: the model's default.

    `output_config.effort` overrides a budget, and disabled thinking overrides both.
    """
    thinking, output = request.thinking, request.output_config
    if isinstance(thinking, NoThinking):
        return "none"
    if output is not None and output.effort is not None:
        return output.effort
    if isinstance(thinking, BudgetedThinking):
        budget = thinking.budget_tokens
        return "low" if budget < MEDIUM_BUDGET else "medium" if budget < HIGH_BUDGET else "high"
    return None


def _body(model: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]], fields: dict[str, Any]) -> bytes:
    body = {"model": model, "messages": messages, **fields}
    if tools:
        body["tools"] = tools
    return _encode(body)


def _fields(request: Prompt) -> dict[str, Any]:
    """Return all of a chat's body but its model, messages and tools."""
    fields: dict[str, Any] = {}
    if isinstance(request, MessagesRequest):
        fields |= _sampling(request)
    effort = effort_of(request)
    if effort is not None:
        fields["reasoning_effort"] = effort
    choice = request.tool_choice
    if choice is not None and request.loaded_tools:
        if isinstance(choice, NamedChoice):
            fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        else:
            fields["tool_choice"] = _CHOICES[str(choice.__struct_config__.tag)]
        if isinstance(choice, AutoChoice | AnyChoice | NamedChoice) and choice.disable_parallel_tool_use:
            fields["parallel_tool_calls"] = False
    if request.format is not None:
        schema = {"name": _FORMAT_NAME, "schema": request.format.schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return fields


def _sampling(request: MessagesRequest) -> dict[str, Any]:
    user = request.metadata.user_id if request.metadata is not None else None
    stated: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "stream": request.stream,
        "stop": request.stop_sequences or None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "user": user[:MAX_USER_LENGTH] if user else None,
        "speed": request.speed if request.speed != "standard" else None,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return marked({"type": "function", "function": function}, tool.cache_control)
