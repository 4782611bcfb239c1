"""The headers that name what answered a request."""

from functools import lru_cache
from typing import Final

from gateway.wire.exchange import Headers, header_lines

_MODEL: Final = b"x-tollkeeper-model"
_VERSION: Final = b"x-tollkeeper-model-version"
_MAX_LENGTH: Final = 200


@lru_cache(maxsize=512)  # a gateway's models are few, and each answer names one
def served_headers(model: str, version: str) -> Headers:
    """Return the headers for a model and its version, either empty if unknown.

    The values are the target's: characters that are invalid in a header are removed.
    """
    stated = ((_MODEL, model), (_VERSION, version))
    return tuple((name, word.encode()) for name, word in stated if _is_plain(word))


@lru_cache(maxsize=512)
def lines_of(served: Headers) -> bytes:
    """Return these headers as the lines of a head."""
    return header_lines(served)


def _is_plain(word: str) -> bool:
    return 0 < len(word) <= _MAX_LENGTH and word.isascii() and word.isprintable()
