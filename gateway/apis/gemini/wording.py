"""Translates errors about a chat's fields to the Gemini API's field names."""

import re
from typing import Final

from contracts.errors import TollkeeperError

_CONFIG: Final = "generationConfig"
_NAMES: Final = {
    "messages": "contents",
    "max_tokens": f"{_CONFIG}.maxOutputTokens",
    "max_completion_tokens": f"{_CONFIG}.maxOutputTokens",
    "temperature": f"{_CONFIG}.temperature",
    "top_p": f"{_CONFIG}.topP",
    "top_k": f"{_CONFIG}.topK",
    "n": f"{_CONFIG}.candidateCount",
    "stop": f"{_CONFIG}.stopSequences",
    "seed": f"{_CONFIG}.seed",
    "presence_penalty": f"{_CONFIG}.presencePenalty",
    "frequency_penalty": f"{_CONFIG}.frequencyPenalty",
    "response_format": f"{_CONFIG}.responseSchema",
    "reasoning_effort": f"{_CONFIG}.thinkingConfig",
    "tool_choice": "toolConfig.functionCallingConfig",
    "dimensions": "outputDimensionality",
}
_FIELD: Final = re.compile(r"\w+")
# Names that are no English words: these are renamed wherever a message has them, others at its beginning alone.
_SAID: Final = re.compile(rf"\b({'|'.join(name for name in _NAMES if '_' in name)})\b")


def in_own_words(error: TollkeeperError) -> TollkeeperError:
    """Return the error with the name of the Gemini request's field instead of the chat's."""
    field = _FIELD.match(error.param or "")
    own = _NAMES.get(field.group()) if field is not None else None
    if field is None or own is None:
        return error
    error.message = re.compile(rf"\A{field.group()}\b").sub(own, error.message)
    error.message = _SAID.sub(lambda found: _NAMES[found.group(1)], error.message)
    error.param = own
    return error
