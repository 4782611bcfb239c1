"""What a record stores of a model server's error: status, type, and a message without private text."""

import re
from typing import Final, TypedDict

from contracts.errors import TollkeeperError
from gateway.wire.public_errors import without_places

_MAX_MESSAGE: Final = 200
_SHARED_CHARACTERS: Final = 12  # a stretch of the request's body that a message must not repeat
_SEARCHED_BYTES: Final = 1 << 18  # of a longer request nobody could say that a message repeats nothing
_TYPE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# A refusal of the request itself is about its text; its words are never kept.
_ABOUT_THE_REQUEST: Final = frozenset({400, 409, 413, 415, 422})


class UpstreamFacts(TypedDict, total=False):
    """The fields of a record about an upstream's error."""

    upstream_status: int | None
    upstream_error: str
    upstream_message: str


def upstream_facts(error: TollkeeperError | None, body: bytes) -> UpstreamFacts:
    """Return the record's fields for a failed attempt's error; empty ones if no model server answered."""
    if error is None or (error.upstream_status is None and not error.quote):
        return {}
    kind = error.upstream_type if _TYPE.fullmatch(error.upstream_type) else ""
    message = "" if error.upstream_status in _ABOUT_THE_REQUEST else _safe(error.quote, body)
    return {"upstream_status": error.upstream_status, "upstream_error": kind, "upstream_message": message}


def _safe(message: str, body: bytes) -> str:
    """Return the message without quotations, addresses, paths and parts of the request."""
    said = " ".join(_QUOTED.sub("[...]", without_places(message)).split())
    said = said[:_MAX_MESSAGE]
    if len(body) > _SEARCHED_BYTES:
        return ""
    place = 0
    kept: list[str] = []
    while place < len(said):
        stretch = said[place : place + _SHARED_CHARACTERS]
        if len(stretch) == _SHARED_CHARACTERS and stretch.encode() in body:
            end = place + _SHARED_CHARACTERS
            while end < len(said) and said[place : end + 1].encode() in body:
                end += 1
            kept.append("[...]")
            place = end
        else:
            kept.append(said[place])
            place += 1
    return "".join(kept)
