"""Parses search text for requests: `user:alice error:rate_limit_exceeded ttft>500ms`, an id, or a part of a name."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from contracts.errors import InvalidRequest

MAX_SEARCH_CHARACTERS: Final = 500
_TEXTS: Final = (
    *("route", "provider", "replica", "error", "user", "conversation"),
    *("run", "prompt", "project", "key", "model"),
)
_UNITS_NS: Final[Mapping[str, int]] = {"us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "": 10**6}
_ABOVE: Final = re.compile(r"(ttft|duration|attempts)>(\d{1,9}(?:\.\d{1,6})?)(us|ms|s|min|)", re.IGNORECASE)
_COMPARED: Final = re.compile(r"(ttft|duration|attempts)[<>=]", re.IGNORECASE)
_TRACE: Final = re.compile(r"[0-9a-fA-F]{32}")
_HELP: Final = (
    "write name:value with one of "
    + ", ".join((*_TEXTS, "trace", "status", "upstream_status", "tag.NAME"))
    + "; ttft>500ms, duration>2s or attempts>1; an id; or a part of a name"
)


@dataclass(frozen=True, slots=True)
class Search:
    """Conditions that a request must all match; `None`: no condition. Times are exclusive lower bounds in nanoseconds.

    `word`: part of a model, team, project, error, prompt, end user, conversation or run, case-insensitive.
    """

    request_id: UUID | None = None
    word: str | None = None
    route: str | None = None
    provider: str | None = None
    replica: str | None = None
    error: str | None = None
    user: str | None = None
    conversation: str | None = None
    run: str | None = None
    prompt: str | None = None
    project: str | None = None
    key: str | None = None
    trace: str | None = None
    status: int | None = None
    upstream_status: int | None = None
    model: str | None = None
    tag_name: str | None = None
    tag_value: str | None = None
    min_ttft_ns: int | None = None
    min_duration_ns: int | None = None
    min_attempts: int | None = None

    @property
    def word_pattern(self) -> str:
        """Return the LIKE pattern for lower-cased text that contains the word; "%%" without a word."""
        return f"%{_literal(self.word or '')}%"

    @property
    def user_pattern(self) -> str:
        """Return the LIKE pattern for the end user's lower-cased name, which the store's index supports."""
        return _literal(self.user or "")


def _literal(text: str) -> str:
    """Return the escaped pattern of a text, with only ASCII letters lower-cased, like the store's `lower`."""
    lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    return re.sub(r"[\\%_]", r"\\\g<0>", lowered)


def read_search(text: str) -> Search:
    """Parse search text. Terms are separated by spaces; quotes keep a value with spaces together.

    Raises InvalidRequest with the term, for an unknown name or an invalid value.
    """
    if len(text) > MAX_SEARCH_CHARACTERS:
        raise InvalidRequest(
            f"the search has {len(text)} characters; use at most {MAX_SEARCH_CHARACTERS}", param="search"
        )
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise InvalidRequest("the search has a quote that is not closed", param="search") from error
    search, words = Search(), []
    for term in terms:
        found = _with_term(search, term)
        if found is None:
            words.append(term)
        else:
            search = found
    return replace(search, word=" ".join(words)) if words else search


def _with_term(search: Search, term: str) -> Search | None:
    """Return the search with one term added; `None` if the term is a word."""
    if (above := _ABOVE.fullmatch(term)) is not None:
        return _with_least(search, *above.groups())
    if _COMPARED.match(term):
        raise InvalidRequest(
            f"{term!r} is not a lower bound; write NAME>NUMBER, for times with us, ms, s or min, such as ttft>500ms",
            param="search",
        )
    if (request_id := _uuid(term)) is not None:
        return replace(search, request_id=request_id)
    if _TRACE.fullmatch(term):
        return replace(search, trace=term.lower())
    name, colon, value = term.partition(":")
    if not colon or not name:
        return None
    if not value:
        raise InvalidRequest(f"{term!r} lacks a value; {_HELP}", param="search")
    if name in _TEXTS:
        changed: dict[str, Any] = {name: value}
        return replace(search, **changed)
    if name.startswith("tag.") and len(name) > len("tag."):
        return replace(search, tag_name=name.removeprefix("tag."), tag_value=value)
    if name == "trace":
        if not _TRACE.fullmatch(value):
            raise InvalidRequest(f"{value!r} is not a trace id; it has 32 hexadecimal digits", param="search")
        return replace(search, trace=value.lower())
    if name in ("status", "upstream_status"):
        if not (value.isascii() and value.isdigit() and len(value) == len("429")):
            raise InvalidRequest(f"{value!r} is not a status; use one such as 429", param="search")
        status: dict[str, Any] = {name: int(value)}
        return replace(search, **status)
    raise InvalidRequest(f"nothing is searched by {name!r}; {_HELP}", param="search")


def _with_least(search: Search, name: str, number: str, unit: str) -> Search:
    name, unit = name.lower(), unit.lower()
    if name == "attempts":
        if unit or "." in number or int(number) > 65_535:
            raise InvalidRequest(
                f"attempts>{number}{unit} is not a whole number up to 65,535; write one, such as attempts>1",
                param="search",
            )
        return replace(search, min_attempts=int(number))
    whole, _, fraction = number.partition(".")
    size = _UNITS_NS[unit]
    nanoseconds = int(whole) * size + int(fraction.ljust(6, "0")) * size // 10**6 if fraction else int(whole) * size
    changed: dict[str, Any] = {f"min_{name}_ns": nanoseconds}
    return replace(search, **changed)


def _uuid(term: str) -> UUID | None:
    if len(term) != len("00000000-0000-0000-0000-000000000000"):
        return None
    try:
        return UUID(term)
    except ValueError:
        return None
