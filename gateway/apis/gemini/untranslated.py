"""Reads a request of the Gemini API that is sent to its target untranslated: its limits, its tools, and its thinking
budget.
"""

from typing import Any, Final

import msgspec

from contracts.api.chat import TranslatedChat
from contracts.api.gemini import GeminiContent, GeminiPart, GeminiRequest, GenerationConfig, ThinkingConfig
from contracts.errors import InvalidRequest
from gateway.apis.reading import read_body

_SHOWN: Final = GenerationConfig(thinking_config=ThinkingConfig(include_thoughts=True))
_NOTHING: Final = [GeminiContent([GeminiPart(text="")], "user")]


class _Fields(msgspec.Struct, frozen=True):
    contents: msgspec.Raw
    tools: list[msgspec.Raw] | None = None
    generationConfig: dict[str, Any] | None = None
    generation_config: dict[str, Any] | None = None


_fields: Final = msgspec.json.Decoder(_Fields)


def read_untranslated_gemini(model: str, content_type: str, body: bytes, *, is_streamed: bool) -> TranslatedChat:
    """Read a body. Raises UnsupportedMediaType, MalformedBody, or InvalidRequest if a field that the gateway uses is
    invalid.
    """
    read = read_body(_fields, content_type, body, {})
    config = read.generationConfig or read.generation_config or {}
    temperature = config.get("temperature")
    return TranslatedChat(
        model=model,
        messages=[],
        stream=True if is_streamed else None,
        max_tokens=_whole(config, "maxOutputTokens", "max_output_tokens"),
        n=_whole(config, "candidateCount", "candidate_count"),
        temperature=temperature if isinstance(temperature, float | int) else None,
        tools=read.tools,
        chat_body=body,
        origin=GeminiRequest(contents=_NOTHING, generation_config=_SHOWN),
    )


def _whole(config: dict[str, Any], camel: str, snake: str) -> int | None:
    """Return a count. Raise InvalidRequest if it is not a positive integer."""
    value = config.get(camel, config.get(snake))
    if value is None:
        return None
    if type(value) is not int or not 1 <= value < 2**31:
        raise InvalidRequest(
            f"generationConfig.{camel} is {str(value)[:60]}; it is a whole number from 1",
            param=f"generationConfig.{camel}",
        )
    return value
