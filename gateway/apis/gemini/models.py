"""Lists of models in the Gemini API's format, for Google's clients."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.wire.exchange import Exchange

_METHODS: Final = ("generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents")
_encode: Final = msgspec.json.Encoder().encode


def is_google(exchange: Exchange) -> bool:
    """Return whether the caller is a client of Google's API, by the header that contains its key.

    Google's SDKs use v1 by default, where OpenAI's API has paths of the same names.
    """
    return bool(exchange.header(b"x-goog-api-key"))


def model_page(names: Iterable[str]) -> bytes:
    """Return the list of models, all on one page."""
    return _encode({"models": [_entry(name) for name in names]})


def model_body(name: str) -> bytes:
    """Return the description of one model."""
    return _encode(_entry(name))


def _entry(name: str) -> dict[str, object]:
    return {"name": f"models/{name}", "displayName": name, "version": "1", "supportedGenerationMethods": _METHODS}
