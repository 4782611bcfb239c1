"""Paths of the Gemini API, which contain the model and the operation."""

import re
from typing import Final
from urllib.parse import unquote

from contracts.errors import NotFound

MODELS: Final = "/v1beta/models"
SERVED: Final = (
    "POST /v1beta/models/{model}:generateContent",
    "POST /v1beta/models/{model}:streamGenerateContent?alt=sse",
    "POST /v1beta/models/{model}:embedContent",
    "POST /v1beta/models/{model}:batchEmbedContents",
    "POST /v1beta/models/{model}:countTokens",
    "GET /v1beta/models",
    "GET /v1beta/models/{model}",
)
# Google's SDKs say v1, v1beta or v1alpha, by their release and settings.
_PATH: Final = re.compile(r"/v1(?:beta|alpha)?/models/(.+):([a-z]+[A-Z][A-Za-z]*)")
_BETA: Final = ("/v1beta/", "/v1alpha/", "/upload/")
_LISTED: Final = re.compile(r"/v1(?:beta|alpha)/models(?:/([^:]+))?")


def is_gemini(path: str) -> bool:
    """Return whether a path belongs to the Gemini API, even if the gateway does not support it."""
    return path.startswith(_BETA) or _PATH.fullmatch(path) is not None


def models_path(path: str) -> str | None:
    """Return the model that a path names; empty if the path lists all models; `None` for any other path."""
    found = _LISTED.fullmatch(path)
    return None if found is None else unquote(found.group(1) or "")


def verb_of(path: str) -> str:
    """Return the operation in a path; empty if there is none."""
    found = _PATH.fullmatch(path)
    return "" if found is None else found.group(2)


def model_and_verb(path: str) -> tuple[str, str]:
    """Return the model and the operation in a path. Raise NotFound if there are none."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise NotFound(f"there is no {path[:100]!r} here; served are {', '.join(SERVED)}")
    return unquote(found.group(1)), found.group(2)
