"""Prompt cache marks of a request (`cache_control`), and the number of tokens that they cover.

The marks are those of Anthropic's API (prompt caching, October 2026): on a tool, a message or a part of one, for five
minutes or an hour from the last use. In OpenAI's chat format they have the same places.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from contracts.api.chat import ChatRequest, TranslatedChat
from contracts.engine.kept_prefix import KeptPrefix
from contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import (
        PromptFormat,  # loads libraries that only gateways with engine hosts need
    )

_NAME: Final = b'"cache_control"'
_SECONDS: Final = {"5m": 300, "1h": 3600}
_MOST_MARKS: Final = 4  # the limit of Anthropic's API
_ALL: Final = 1 << 30  # all parts of a message
_TOOLS: Final = -1  # in place of a message


class _Ephemeral(msgspec.Struct, frozen=True):
    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] = "5m"


class _Marked(msgspec.Struct, frozen=True):
    cache_control: _Ephemeral | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Marked] | None = None
    cache_control: _Ephemeral | None = None
    tool_calls: list[_Marked] | None = None


class _Chat(msgspec.Struct, frozen=True):
    messages: list[_Message]
    tools: list[_Marked] | None = None


class Mark(msgspec.Struct, frozen=True, order=True):
    """The end of a prefix to keep: it includes `parts` parts of the message at index `message` (-1: tools only)."""

    message: int
    parts: int
    ttl_seconds: int


_chats: Final = msgspec.json.Decoder(_Chat)


def marks_of(request: ChatRequest, body: bytes) -> list[Mark]:
    """Return a chat's marks that no later mark covers, in order of position. `body` is the application's bytes.

    Raises InvalidRequest if marks are malformed or there are more than four.
    """
    source = request.marked_body if isinstance(request, TranslatedChat) else body
    if _NAME not in source:
        return []
    try:
        chat = _chats.decode(source)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            'cache_control must be {"type": "ephemeral"}, with a ttl of "5m" or "1h" where it has one',
            param="cache_control",
        ) from error
    found = [mark for place, message in enumerate(chat.messages) for mark in _marks_in(place, message)]
    found += [Mark(_TOOLS, _ALL, _SECONDS[tool.cache_control.ttl]) for tool in chat.tools or () if tool.cache_control]
    if len(found) > _MOST_MARKS:
        raise InvalidRequest(
            f"cache_control is given {len(found)} times; at most {_MOST_MARKS} are possible", param="cache_control"
        )
    furthest: list[Mark] = []
    for mark in sorted(found, reverse=True):
        # A mark is covered by a later one with the same or a longer life.
        if all(mark.ttl_seconds > one.ttl_seconds for one in furthest):
            furthest.append(mark)
    return furthest[::-1]


def kept_prefixes(
    marks: Sequence[Mark],
    request: ChatRequest,
    messages: Sequence[Mapping[str, object]],
    form: "PromptFormat",
    more: Mapping[str, Any],
    token_ids: Sequence[int],
) -> tuple[KeptPrefix, ...]:
    """Return the prefixes to keep, shortest first, with the number of prompt tokens that each mark covers.

    The messages before a mark are rendered separately: the common beginning of that and the prompt is the prefix. A
    mark is skipped if the template cannot render them.
    """
    found: list[KeptPrefix] = []
    for mark in marks:
        try:
            beginning = form.encode(form.render(_until(mark, request, messages), **more))
        except InvalidRequest:
            continue
        tokens = _common(beginning, token_ids)
        if tokens:
            found.append(KeptPrefix(tokens=tokens, ttl_seconds=mark.ttl_seconds))
    return tuple(sorted(found, key=lambda kept: kept.tokens))


def _marks_in(place: int, message: _Message) -> list[Mark]:
    found: list[Mark] = []
    if isinstance(message.content, list):
        for number, part in enumerate(message.content, start=1):
            if part.cache_control is not None:
                found.append(Mark(place, number, _SECONDS[part.cache_control.ttl]))
    for whole in (message, *(message.tool_calls or ())):
        if whole.cache_control is not None:
            found.append(Mark(place, _ALL, _SECONDS[whole.cache_control.ttl]))
    return found


def _until(
    mark: Mark, request: ChatRequest, messages: Sequence[Mapping[str, object]]
) -> Sequence[Mapping[str, object]]:
    """Return the messages up to a mark. For a mark on tools that is the system message, into which
    templates put tools.
    """
    if mark.message == _TOOLS:
        first = messages[:1] if messages and messages[0]["role"] in ("system", "developer") else ()
        return first or [{"role": "user", "content": ""}]
    last = dict(messages[mark.message])
    said, stated = last["content"], request.messages[mark.message].content
    if isinstance(said, list):
        last["content"] = said[: mark.parts]
    elif isinstance(stated, list) and len(stated) > mark.parts:
        last["content"] = "\n".join(part.text or part.refusal or "" for part in stated[: mark.parts])
    return [*messages[: mark.message], last]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning of two id sequences."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    low, high = 0, shorter  # equal up to low, not up to high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low
