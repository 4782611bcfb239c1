"""Translates bodies of the Gemini API to chats. Fields that no chat can express are refused by name."""

import re
from typing import Any, Final

import msgspec
from msgspec import structs

from contracts.api.chat import ChatRequest, ReasoningEffort, TranslatedChat
from contracts.api.gemini import (
    MAX_FUNCTIONS,
    MAX_PARTS,
    FunctionDeclaration,
    FunctionMode,
    GeminiContent,
    GeminiPart,
    GeminiRequest,
)
from contracts.errors import InvalidRequest, NotOffered
from gateway.apis.messages.translation import HIGH_BUDGET, MEDIUM_BUDGET
from gateway.apis.reading import Choices, read_body

_SNAKE: Final = re.compile(r"_([a-z])")
_FREE: Final = frozenset(("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "labels"))
_CHOICES: Final[Choices] = {"role": ("user", "model"), "mode": ("AUTO", "ANY", "NONE", "VALIDATED")}
_MODES: Final[dict[FunctionMode, str]] = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
_LEVELS: Final[dict[str, ReasoningEffort]] = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_JSON: Final = "application/json"
_SAMPLING: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "candidate_count": "n",
    "max_output_tokens": "max_tokens",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
_IMAGES: Final = "image/"
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}

_requests: Final = msgspec.json.Decoder(GeminiRequest)
_chats: Final = msgspec.json.Decoder(ChatRequest)
_encode: Final = msgspec.json.Encoder().encode


def read_gemini(model: str, content_type: str, body: bytes, *, is_streamed: bool) -> TranslatedChat:
    """Read a body as a chat with a model.

    Raises UnsupportedMediaType, MalformedBody (with the byte), or InvalidRequest (with field, value and limit).
    """
    request = read_body(_requests, content_type, in_camel_case(body), _CHOICES)
    _check(request)
    fields: dict[str, Any] = {"model": model, "messages": _messages(request), **_sampling(request)}
    if is_streamed:
        fields["stream"] = True
    functions = [one for tool in request.tools or () for one in tool.function_declarations]
    if len(functions) > MAX_FUNCTIONS:
        raise InvalidRequest(f"tools has {len(functions)} functions; at most {MAX_FUNCTIONS} are taken", param="tools")
    if functions:
        fields["tools"] = [_function(one) for one in functions]
        fields |= _choice(request, functions)
    chat_body = _encode(fields)
    chat = _chats.decode(chat_body)
    return TranslatedChat(**structs.asdict(chat), chat_body=chat_body, origin=request)


def in_camel_case(body: bytes) -> bytes:
    """Return a body with its field names in camelCase: the API accepts snake_case too. A body that is not a JSON object
    is unchanged.
    """
    if b"_" not in body:
        return body
    try:
        return _encode(_camel(msgspec.json.decode(body)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return body  # the reader says what is wrong


def _camel(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    renamed = {}
    for name, one in value.items():
        own = _SNAKE.sub(lambda found: found.group(1).upper(), name)
        renamed[own] = one if own in _FREE else _camel(one)
    return renamed


def _check(request: GeminiRequest) -> None:
    if request.cached_content is not None:
        raise NotOffered("cachedContent is not offered; leave it out", param="cachedContent")
    parts = 0
    for place, content in enumerate(request.contents):
        parts += len(content.parts)
        for number, part in enumerate(content.parts):
            if part.file_data is not None or part.executable_code is not None or part.code_execution_result is not None:
                kind = "fileData" if part.file_data is not None else "the result of code at Google's side"
                raise NotOffered(
                    f"contents[{place}].parts[{number}] is {kind}, which is not offered; it is neither text, "
                    "inlineData, functionCall nor functionResponse",
                    param=f"contents[{place}].parts[{number}]",
                )
    if parts > MAX_PARTS:
        raise InvalidRequest(f"contents has {parts} parts; at most {MAX_PARTS} are taken", param="contents")
    config = request.generation_config
    modalities = [one.upper() for one in (config.response_modalities if config is not None else None) or ()]
    if any(one != "TEXT" for one in modalities):
        raise NotOffered(
            "generationConfig.responseModalities asks for more than TEXT", param="generationConfig.responseModalities"
        )


def _messages(request: GeminiRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    system = request.system_instruction
    if system is not None:
        text = system if isinstance(system, str) else "\n".join([part.text or "" for part in system.parts])
        found.append({"role": "system", "content": text})
    ids = _CallIds()
    for content in request.contents:
        found += _model_turn(content, ids) if content.role == "model" else _user_turn(content, ids)
    if not found or all(message["role"] == "system" for message in found):
        raise InvalidRequest("contents holds nothing for a model to read; give a part with text", param="contents")
    return found


class _CallIds:
    """Assigns the call ids that chats need. A result without an id belongs to the oldest open call of its name."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[tuple[str, str]] = []  # name and id

    def of_call(self, name: str, stated: str | None) -> str:
        """Return a call's id."""
        identifier = stated or f"call_{self._made}"
        self._made += 1
        self._open.append((name, identifier))
        return identifier

    def of_result(self, name: str, stated: str | None) -> str:
        """Return the id of the call that a result is of."""
        for place, (called, identifier) in enumerate(self._open):
            if identifier == stated or (stated is None and called == name):
                del self._open[place]
                return identifier
        raise InvalidRequest(
            f"a functionResponse is named {name[:60]!r}, and no functionCall before it is", param="contents"
        )


def _model_turn(content: GeminiContent, ids: _CallIds) -> list[dict[str, Any]]:
    text = "".join([part.text or "" for part in content.parts if not part.thought])
    calls = [
        {
            "id": ids.of_call(part.function_call.name, part.function_call.id),
            "type": "function",
            "function": {"name": part.function_call.name, "arguments": _encode(part.function_call.args or {}).decode()},
        }
        for part in content.parts
        if part.function_call is not None
    ]
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _user_turn(content: GeminiContent, ids: _CallIds) -> list[dict[str, Any]]:
    results = [
        {
            "role": "tool",
            "tool_call_id": ids.of_result(part.function_response.name, part.function_response.id),
            "content": bytes(part.function_response.response).decode(),
        }
        for part in content.parts
        if part.function_response is not None
    ]
    parts = [_part(part) for part in content.parts if part.text is not None or part.inline_data is not None]
    if not parts:
        return results
    said = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    return [*results, {"role": "user", "content": said}]


def _part(part: GeminiPart) -> dict[str, Any]:
    blob = part.inline_data
    if blob is None:
        return {"type": "text", "text": part.text or ""}
    if blob.mime_type.startswith(_IMAGES):
        return {"type": "image_url", "image_url": {"url": f"data:{blob.mime_type};base64,{blob.data}"}}
    if blob.mime_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": blob.data, "format": _AUDIO[blob.mime_type]}}
    data = f"data:{blob.mime_type};base64,{blob.data}"
    return {"type": "file", "file": {"filename": "document", "file_data": data}}


def _sampling(request: GeminiRequest) -> dict[str, Any]:
    config = request.generation_config
    if config is None:
        return {}
    fields = {own: value for name, own in _SAMPLING.items() if (value := getattr(config, name)) is not None}
    if config.top_k is not None:
        fields["top_k"] = int(config.top_k)
    if config.stop_sequences:
        fields["stop"] = config.stop_sequences
    schema = config.response_json_schema
    if schema is None and config.response_schema is not None:
        schema = _schema(config.response_schema)
    if schema is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    elif config.response_mime_type == _JSON:
        fields["response_format"] = {"type": "json_object"}
    effort = _effort(request)
    return fields if effort is None else fields | {"reasoning_effort": effort}


def _effort(request: GeminiRequest) -> ReasoningEffort | None:
    config = request.generation_config
    thinking = None if config is None else config.thinking_config
    if thinking is None:
        return None
    if thinking.thinking_level is not None:
        return _LEVELS.get(thinking.thinking_level.upper())
    budget = thinking.thinking_budget
    if budget is None or budget < 0:  # the model decides
        return None
    return "none" if budget == 0 else "low" if budget < MEDIUM_BUDGET else "medium" if budget < HIGH_BUDGET else "high"


def _function(declared: FunctionDeclaration) -> dict[str, Any]:
    schema = declared.parameters_json_schema
    if schema is None:
        schema = {"type": "object", "properties": {}} if declared.parameters is None else _schema(declared.parameters)
    function: dict[str, Any] = {"name": declared.name, "parameters": schema}
    if declared.description:
        function["description"] = declared.description
    return {"type": "function", "function": function}


def _schema(given: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI schema as a JSON schema: types are in lower case there."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "type" and isinstance(value, str):
            found[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            found[name] = {one: _inner(inner) for one, inner in value.items()}
        elif name == "items":
            found[name] = _inner(value)
        elif name in ("anyOf", "any_of") and isinstance(value, list):
            found["anyOf"] = [_inner(one) for one in value]
        elif name not in ("propertyOrdering", "property_ordering"):
            found[name] = value
    if found.pop("nullable", False) and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


def _inner(given: Any) -> Any:
    """Return what stands where a schema may, if it is one as a JSON schema."""
    return _schema(given) if isinstance(given, dict) else given


def _choice(request: GeminiRequest, functions: list[FunctionDeclaration]) -> dict[str, Any]:
    config = request.tool_config.function_calling_config if request.tool_config is not None else None
    if config is None or config.mode is None or config.mode == "MODE_UNSPECIFIED":
        return {}
    allowed = config.allowed_function_names
    if config.mode == "ANY" and allowed is not None and len(allowed) == 1:
        if all(one.name != allowed[0] for one in functions):
            raise InvalidRequest(
                f"allowedFunctionNames has {allowed[0][:60]!r}, and no function is named so",
                param="toolConfig.functionCallingConfig.allowedFunctionNames",
            )
        return {"tool_choice": {"type": "function", "function": {"name": allowed[0]}}}
    if allowed:
        known = [one for one in functions if one.name in allowed]
        return {"tool_choice": _MODES[config.mode], "tools": [_function(one) for one in known]}
    return {"tool_choice": _MODES[config.mode]}
