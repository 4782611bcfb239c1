"""The one list of request fields that are accepted and ignored, because they change no answer.

A field belongs here if a current client sends it by default, and the answer is the same without it: the client's own
bookkeeping, or a setting that asks for what is done anyway. Add it with the name of that client, and to the table in
docs/parameters.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

ApiName = Literal["messages", "responses"]

_decode: Final = msgspec.json.Decoder(dict[str, Any])


def is_ignored(api: ApiName, name: str, value: bytes) -> bool:
    """Return whether a field of a request's body changes no answer. `value` is its JSON."""
    changes_nothing = IGNORED_FIELDS[api].get(name)
    return changes_nothing is not None and changes_nothing(value)


def ignored_in(api: ApiName, body: bytes) -> tuple[str, ...]:
    """Return the names of the fields of a body that are ignored. The body is a JSON object."""
    if not any([name in body for name in _QUOTED[api]]):
        return ()
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return tuple(name for name, value in fields.items() if is_ignored(api, name, bytes(value)))


def without_ignored(api: ApiName, body: bytes) -> bytes:
    """Return a body without its ignored fields. Raise msgspec.DecodeError if it is not a JSON object."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in fields.items() if not is_ignored(api, name, bytes(value))}
    return msgspec.json.encode(kept)


def _always(value: bytes) -> bool:
    return True


def _keeps_all_context(value: bytes) -> bool:
    """Return whether a `context_management` removes nothing: it has no edits, or only edits that keep all thinking."""
    try:
        wanted = _decode.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return False
    edits = wanted.get("edits") or []
    return wanted.keys() <= {"edits"} and isinstance(edits, list) and all(edit == _KEEP_ALL for edit in edits)


_KEEP_ALL: Final = {"type": "clear_thinking_20251015", "keep": "all"}

IGNORED_FIELDS: Final[Mapping[ApiName, Mapping[str, Callable[[bytes], bool]]]] = {
    "messages": {
        "context_management": _keeps_all_context,  # Claude Code
    },
    "responses": {
        "client_metadata": _always,  # Codex: ids of its session, turn and installation
    },
}
_QUOTED: Final[Mapping[ApiName, tuple[bytes, ...]]] = {
    api: tuple(f'"{name}"'.encode() for name in names) for api, names in IGNORED_FIELDS.items()
}
