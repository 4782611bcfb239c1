"""Deny lists: words, phrases and regular expressions that are not allowed."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import Finding
from contracts.guardrails.plain_text import plain_text
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.screening.expression import Expression, checked, escaped
from gateway.guardrails.settings import read_settings

_MOST_KEYWORDS: Final = 5_000
_MOST_EXPRESSIONS: Final = 200
_LONGEST_KEYWORD: Final = 500  # characters
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
KEYWORD: Final = "keyword"
_BLANKS: Final = r"[\s\x0b\x1c-\x1f\x{85}]+"  # RE2's own are but five of them


class DenySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings. `keywords` match whole words, with any white space between them; `expressions` are by name.

    Both are compared with the plain form of texts.
    """

    keywords: list[str] = []
    expressions: dict[str, str] = {}
    case_sensitive: bool = False


class DenyList:
    """Detector of the words and expressions on the configured list."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.patterns = tuple(sources.values())
        self._kinds = [(kind, Expression(source)) for kind, source in sources.items()]

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Find all entries in a text; one place may be found several times."""
        kinds = self._kinds if matching is None else [self._kinds[number] for number in matching]
        found = [Finding(*span, kind) for kind, expression in kinds for span in expression.spans(text)]
        return sorted(found, key=lambda one: (one.start, -one.end))


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> DenyList:
    """Build a deny list. Raises ConfigurationError on an invalid entry."""
    given = read_settings(settings, DenySettings)
    if not given.keywords and not given.expressions:
        raise ConfigurationError("settings: give keywords or expressions; nothing is denied")
    if len(given.keywords) > _MOST_KEYWORDS or len(given.expressions) > _MOST_EXPRESSIONS:
        raise ConfigurationError(
            f"settings: {len(given.keywords)} keywords and {len(given.expressions)} expressions are given; "
            f"{_MOST_KEYWORDS} and {_MOST_EXPRESSIONS} are the most"
        )
    sources: dict[str, str] = {}
    flags = "" if given.case_sensitive else "i"
    if given.keywords:
        words = [_word(place, one) for place, one in enumerate(given.keywords)]
        sources[KEYWORD] = f"(?{flags}:{'|'.join(words)})"
    for name, source in given.expressions.items():
        if _KIND.fullmatch(name) is None or name == KEYWORD:
            raise ConfigurationError(
                f"expressions.{name[:80]!r}: a name is 1 to 40 of a-z, 0-9 and _, begins with a letter, and is not "
                f"{KEYWORD!r}"
            )
        sources[name] = f"(?{flags}:{checked(source, f'expressions.{name}')})"
    return DenyList(sources)


def _word(place: int, given: str) -> str:
    words = plain_text(given).split()
    if not words or len(given) > _LONGEST_KEYWORD:
        raise ConfigurationError(f"keywords[{place}] must be 1 to {_LONGEST_KEYWORD} characters, not {len(given)}")
    joined = " ".join(words)
    # RE2's word boundaries know ASCII alone: a word of other letters is found within others.
    before, after = (
        r"\b" if one.isascii() and (one.isalnum() or one == "_") else "" for one in (joined[0], joined[-1])
    )
    return before + _BLANKS.join(map(escaped, words)) + after
