"""What must not be kept of what was said: secrets and personal data, found by their form and replaced by their name."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_DIGIT: Final = re.compile(r"\d")
_MOST_BINARY: Final = 1000  # characters of base64 that are still taken for text


def is_card_number(text: str) -> bool:
    """Say whether digits, with spaces or hyphens between, pass the check of card numbers (Luhn, ISO/IEC 7812-1)."""
    digits = [int(digit) for digit in reversed(_DIGIT.findall(text))]
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2])
    return 13 <= len(digits) <= 19 and any(digits) and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _always(text: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Pattern:
    """A form that is replaced by `[name]`, where `holds` says that it is one."""

    name: str
    form: re.Pattern[str]
    holds: Callable[[str], bool] = _always


# Every repetition is bounded, or of one class that its neighbour does not share: no text takes more than linear time.
DEFAULT_PATTERNS: Final = (
    Pattern(
        "private_key",
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s]{0,20000}(?:-----END [A-Z ]{0,30}KEY-----)?"
        ),
    ),
    Pattern("token", re.compile(r"\beyJ[\w-]{8,4096}\.[\w-]{8,8192}\.[\w-]{0,4096}")),
    Pattern("token", re.compile(r"(?i)\bbearer\s{1,3}[\w.~+/=-]{16,4096}")),
    Pattern(
        "key",
        re.compile(
            r"\b(?:sk|pk|rk|tk|hf|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abeoprs])[-_][A-Za-z0-9_-]{16,300}"
            r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}"
        ),
    ),
    Pattern("email", re.compile(r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")),
    Pattern("card", re.compile(r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])"), is_card_number),
    Pattern("phone", re.compile(r"(?<![\w+])(?:\+|00)[1-9](?:[ ().-]{0,2}\d){6,13}(?!\d)")),
    Pattern("phone", re.compile(r"(?<![\w-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])")),
)
_BINARY: Final = re.compile(r"(?:data:[\w.+/-]{1,100};base64,)?[A-Za-z0-9+/_=-]+")


class Redactor:
    """Replaces what patterns find, the operator's own after ours."""

    def __init__(self, own: Iterable[Pattern] = ()) -> None:
        self._patterns = (*DEFAULT_PATTERNS, *own)

    def redact(self, text: str) -> str:
        """Give a text without what the patterns find; images and the like, in base64, as their size alone."""
        if len(text) > _MOST_BINARY and _BINARY.fullmatch(text):
            return f"[{len(text)} characters of base64]"
        for pattern in self._patterns:
            text = pattern.form.sub(lambda found, one=pattern: _replaced(one, found[0]), text)  # type: ignore[misc]
        return text

    def redact_all(self, value: object) -> object:
        """Redact every text in a JSON value, names of fields too."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self.redact_all(one) for one in value]
        if isinstance(value, dict):
            return {self.redact(str(name)): self.redact_all(one) for name, one in value.items()}
        return value


def read_patterns(text: str) -> list[Pattern]:
    """Read an operator's patterns: a line each, `name = regular expression`; lines that begin with # are remarks.

    Raises ConfigurationError on a line that is none.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, form = (part.strip() for part in line.partition("="))
        try:
            if _NAME.fullmatch(name) is None or not form or re.compile(form).match(""):
                raise ConfigurationError(
                    f"line {number} of the content patterns is not `name = regular expression`, with a name of a-z, "
                    "0-9 and _, and an expression that does not match nothing"
                )
            found.append(Pattern(name, re.compile(form)))
        except re.error as error:
            raise ConfigurationError(f"line {number} of the content patterns: {error}") from error
    return found


def _replaced(pattern: Pattern, text: str) -> str:
    return f"[{pattern.name}]" if pattern.holds(text) else text
