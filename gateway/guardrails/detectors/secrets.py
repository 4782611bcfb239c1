"""Secrets: private keys, tokens, passwords in URLs, providers' keys by their format, and random-looking words."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import Finding
from contracts.guardrails.places import Places
from contracts.recording.redaction import KEY_PREFIXES
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.settings import read_settings

# Also within JSON or code that was sent as text, where a line's end is two characters and the second is a letter.
_WORD: Final = r"(?:\b|\\[nrtbf])"
# The shapes that providers give their keys, as their documentation has them (November 2026), beside those of
# `contracts.recording.redaction`, and what they are called in a verdict.
_SHAPES: Final[Mapping[str, str]] = {
    "private_key": r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.()]*"
    r"(?:-----END [A-Z ]{0,30}KEY(?: BLOCK)?-----)?",
    "token": _WORD + r"eyJ[\w-]{8,}(?:\.[\w-]+){1,4}|(?i:\bbearer\s{1,3}[\w.~+/=-]{16,})",
    "password": r"://[^\s/:@]*:[^\s/@]+@",
    "key": "|".join(
        (
            _WORD + KEY_PREFIXES + r"[-_][A-Za-z0-9_-]{16,}",
            _WORD + r"(?:AKIA|ASIA)[A-Z0-9]{16}\b",
            _WORD + r"AIza[A-Za-z0-9_-]{35}",
            _WORD + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
            _WORD + r"\d{8,10}:AA[A-Za-z0-9_-]{33}\b",
        )
    ),
}
_RANDOM: Final = r"\b[A-Za-z0-9+/_-]{24,}"
ENTROPY: Final = "entropy"
_KINDS: Final = (*_SHAPES, ENTROPY)


class SecretSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings. `kinds`: what to find. A word of at least 24 characters counts as random if it has at least
    `min_entropy_bits` of entropy per character.
    """

    kinds: tuple[str, ...] = _KINDS
    min_entropy_bits: Annotated[float, Meta(ge=3, le=6)] = 4.2


class Secrets:
    """Finds secrets of some kinds."""

    def __init__(self, kinds: Sequence[str], min_entropy_bits: float) -> None:
        shapes = {name: _SHAPES[name] for name in kinds if name in _SHAPES}
        self.patterns = (*shapes.values(), *((_RANDOM,) if ENTROPY in kinds else ()))
        self._shapes = [(name, Expression(form)) for name, form in shapes.items()]
        self._random = Expression(_RANDOM) if ENTROPY in kinds else None
        self._min_bits = min_entropy_bits

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Find secrets. One that is found by its format is not reported again as a random word."""
        found: list[Finding] = []
        places = Places()
        for number, (name, expression) in enumerate(self._shapes):
            if matching is not None and number not in matching:
                continue
            for start, end in expression.spans(text):
                start += 2 * (text[start] == "\\")  # the line's end before it is none of it
                if name == "password":
                    start, end = start + len("://"), end - len("@")
                if places.take(start, end):
                    found.append(Finding(start, end, name))
        if self._random is not None and (matching is None or len(self._shapes) in matching):
            for start, end in self._random.spans(text):
                if looks_random(text[start:end], self._min_bits) and places.take(start, end):
                    found.append(Finding(start, end, ENTROPY))
        return sorted(found, key=lambda one: one.start)


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> Secrets:
    """Build the detector. Raises ConfigurationError on an unknown kind."""
    given = read_settings(settings, SecretSettings)
    unknown = next((name for name in given.kinds if name not in _KINDS), None)
    if unknown is not None or not given.kinds:
        raise ConfigurationError(f"settings.kinds: {unknown or 'none'!r} is none of {', '.join(_KINDS)}")
    return Secrets(given.kinds, given.min_entropy_bits)


def looks_random(word: str, min_bits: float) -> bool:
    """Return whether a word has letters of both cases and digits, and the entropy (Shannon, bits per character) of
    random text.
    """
    if not (any(map(str.isdigit, word)) and any(map(str.isupper, word)) and any(map(str.islower, word))):
        return False
    counts = Counter(word)
    bits = -sum(count / len(word) * math.log2(count / len(word)) for count in counts.values())
    return bits >= min_bits
