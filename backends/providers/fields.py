"""Selects the request fields that are passed to LiteLLM; others could reach its own switches."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from backends.llm.parameters import IDLE, asks_for_something, unsupported
from backends.providers.base import CHAT, COMPLETIONS, EMBEDDINGS, RERANK, Order
from backends.providers.credentials import leads_on
from contracts.errors import InvalidRequest, TargetMisconfigured, UnsupportedParameter

# Fields of OpenAI, and those of Anthropic and Gemini that LiteLLM accepts under their own names.
_GENERATION: Final = frozenset(
    "temperature top_p n stream stream_options stop max_tokens max_completion_tokens presence_penalty "
    "frequency_penalty logit_bias user seed reasoning_effort top_k".split()
)
_CHAT: Final = _GENERATION | frozenset(
    "messages functions function_call modalities prediction audio response_format tools tool_choice "
    "parallel_tool_calls logprobs top_logprobs verbosity service_tier speed store "
    "thinking web_search_options".split()
)
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    CHAT: _CHAT,
    COMPLETIONS: _GENERATION | {"prompt"},
    EMBEDDINGS: frozenset({"input", "dimensions", "user"}),
    RERANK: frozenset({"query", "documents", "top_n", "return_documents", "max_tokens_per_doc"}),
}
_LEFT_OUT: Final = (IDLE - {"user"}) | {"model", "encoding_format"}  # encoding_format is handled by the host
# Fields for which a provider's default may differ from OpenAI's, so that OpenAI's default is passed on too.
_CHOSEN: Final = frozenset({"temperature", "top_p", "top_k", "verbosity"})
_PLAIN_TEXT: Final = {"type": "text"}
# The kinds of user content that LiteLLM translates. It drops others silently.
_CLAUDE_PARTS: Final = frozenset({"text", "image_url", "file", "document"})
_GEMINI_PARTS: Final = frozenset({"text", "image_url", "file", "input_audio"})
_TRANSLATED_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": _CLAUDE_PARTS,
    "bedrock": _CLAUDE_PARTS | {"guarded_text"},
    "gemini": _GEMINI_PARTS,
    "vertex_ai": _GEMINI_PARTS,
}
# Parameters for LiteLLM that a target's settings may contain.
_PARAMETERS: Final = frozenset(
    "api_version organization project region_name aws_region_name aws_role_name aws_session_name aws_profile_name "
    "aws_bedrock_runtime_endpoint vertex_project vertex_location azure_ad_token_scope extra_headers "
    "allowed_openai_params custom_llm_provider input_type safety_settings max_tokens".split()
)
# Secrets besides the key that a target's settings may refer to.
_CREDENTIALS: Final = frozenset(
    "api_key aws_access_key_id aws_secret_access_key aws_session_token aws_web_identity_token vertex_credentials "
    "azure_ad_token client_secret".split()
)


def fields_of(order: Order) -> dict[str, Any]:
    """Return the request's fields for LiteLLM, without those that have no effect, because providers refuse even these.

    Raises UnsupportedParameter for a field, or a part of a message, that is not supported.
    """
    known = _FIELDS[order.operation]
    given = {}
    for name, value in order.fields.items():
        if name in _LEFT_OUT or (name not in _CHOSEN and not _says_something(name, value)):
            continue
        if name not in known or (name == "speed" and _provider_of(order) != "anthropic"):
            raise unsupported(model_of(order), name)
        given[name] = value
    if order.operation == CHAT:
        _check_parts(order)
    if order.operation == COMPLETIONS:
        given["messages"] = [{"role": "user", "content": _prompt(given.pop("prompt", None))}]
    return given


def model_of(order: Order) -> str:
    """Return LiteLLM's name for the model. Raises InvalidRequest if there is none."""
    model = order.fields.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model is required", param="model")
    return model


def parameters_of(order: Order) -> dict[str, Any]:
    """Return a target's parameters, address and credentials as arguments for LiteLLM.

    Raises TargetMisconfigured if one is not allowed.
    """
    for names, allowed in ((order.parameters, _PARAMETERS), (order.credentials, _CREDENTIALS)):
        for name in names:
            if name not in allowed:
                known = ", ".join(sorted(allowed))
                raise TargetMisconfigured(f"a target may not set {name[:80]!r} for LiteLLM; it may set: {known}")
    for name, value in order.parameters.items():
        if _leads_on(value):
            raise TargetMisconfigured(f"a target's {name} may not name a variable or file for LiteLLM to read")
    place = {"api_base": order.url} if order.url else {}
    return {**order.parameters, **place, **order.credentials}


def _leads_on(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(_leads_on(one) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and leads_on(value)


def _check_parts(order: Order) -> None:
    model, taken = model_of(order), _translated_parts(order)
    if taken is None:
        return
    for place, message in enumerate(order.fields.get("messages") or ()):
        is_user = isinstance(message, dict) and message.get("role") == "user"
        content = message.get("content") if is_user else None
        for number, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in taken:
                where = f"messages[{place}].content[{number}]"
                raise UnsupportedParameter(
                    f"{where} is of the type {str(kind)[:40]!r}; {model[:100]!r} takes {', '.join(sorted(taken))}",
                    param=where,
                )


def _translated_parts(order: Order) -> frozenset[str] | None:
    """Return the kinds of content that reach the provider; `None` if all are passed on."""
    provider = _provider_of(order)
    if provider == "vertex_ai" and "claude" in model_of(order):
        return _CLAUDE_PARTS
    return _TRANSLATED_PARTS.get(provider)


def _provider_of(order: Order) -> str:
    return str(order.parameters.get("custom_llm_provider") or model_of(order).partition("/")[0])


def _says_something(name: str, value: object) -> bool:
    return value != _PLAIN_TEXT and asks_for_something(name, msgspec.Raw(msgspec.json.encode(value)))


def _prompt(prompt: object) -> str:
    """Return the prompt as text. Raises UnsupportedParameter for several prompts or token ids."""
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise UnsupportedParameter("hosted providers take one text as prompt, neither several nor ids", param="prompt")
    return prompt
