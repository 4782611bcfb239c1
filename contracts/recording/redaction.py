"""Redacts secrets and personal data in stored content, by pattern."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Final

from contracts.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_DIGIT: Final = re.compile(r"\d")
_DIGITS: Final = re.compile(r"\d+")
_CARD_BEGINS: Final = re.compile(r"\d{13}|(?<!\d)\d{4}\D+\d{3}")  # among other groups of digits
# Also within JSON or code that was sent as text, where a line's end is two characters and the second is a letter.
_WORD: Final = r"(?:\b|(?<=\\[nrtbf]))"
_ESCAPED: Final = r"(?<=\\[nrtbf])"
_MOST_GROUPS: Final = 6  # groups of digits in a card number
_FIRST_GROUP: Final = 4  # digits
_SHORTEST_CARD: Final = 13  # digits
_LONGEST_CARD: Final = 19
# What the digits of a card number count, by their bytes: every second one twice.
_NO_DIGITS: Final = bytes(byte for byte in range(256) if byte not in b"0123456789")
_VALUES: Final = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED: Final = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
KEY_PREFIXES: Final = r"(?:sk|pk|rk|tk|gsk|xai|hf|npm|nvapi|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abeoprs])"
_MOST_BINARY: Final = 1000  # maximum base64 characters that still count as text


def is_card_number(text: str) -> bool:
    """Return whether digits, separated by spaces or hyphens, pass the check of card numbers (Luhn, ISO/IEC 7812-1)."""
    if text.isascii():
        digits = text.encode().translate(None, _NO_DIGITS)
    else:
        digits = "".join([str(int(digit)) for digit in _DIGIT.findall(text)]).encode()
    if not _SHORTEST_CARD <= len(digits) <= _LONGEST_CARD or not digits.strip(b"0"):
        return False
    return (sum(digits[::-2].translate(_VALUES)) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


def card_spans(text: str) -> list[tuple[int, int]]:
    """Return the positions of card numbers in a run of digits, which may include others, such as an expiry date."""
    if is_card_number(text):
        return [(0, len(text))]
    if text.isdigit() or _CARD_BEGINS.search(text) is None:
        return []
    groups = list(_DIGITS.finditer(text))
    found, at = [], 0
    while at < len(groups):
        end = _card_end(groups, at, text)
        if end == at:
            at += 1
            continue
        found.append((groups[at].start(), groups[end - 1].end()))
        at = end
    return found


def _replace_cards(text: str) -> str:
    left, done = [], 0
    for start, end in card_spans(text):
        left += [text[done:start], "[card]"]
        done = end
    return "".join([*left, text[done:]])


def _card_end(groups: list[re.Match[str]], at: int, text: str) -> int:
    """Return the end of a card number that starts with a group of digits, `at` if there is none.

    It is one group, or starts with a group of four and continues with groups of three to six, as cards are printed.
    """
    first, digits = groups[at].span()
    digits -= first
    if digits != _FIRST_GROUP:
        return at + 1 if digits >= _SHORTEST_CARD and is_card_number(groups[at][0]) else at
    for end in range(at + 2, min(at + _MOST_GROUPS, len(groups)) + 1):
        start, behind = groups[end - 1].span()
        if not 3 <= behind - start <= 6:
            break
        digits += behind - start
        if digits >= _SHORTEST_CARD and is_card_number(text[first:behind]):
            return end
    return at


def _is_signed(text: str) -> bool:
    return "." in text  # a text without a second part was only passed over, so that no text is scanned twice


def _always(text: str) -> bool:
    return True


# What must be in a text that a form below matches. Each begins with what is rare in prose and in code, which the
# library's search skips to: the forms themselves are tried at every character.
_KEY_MARKS: Final = ("AKIA", "ASIA", "AIza")
# The prefixes of keys by their length, behind which the hyphen or underscore is.
_KEY_LIKE: Final = re.compile(
    r"[-_](?:(?<=(?:sk|pk|rk|tk|hf).)|(?<=(?:gsk|xai|npm|gh[pousr]).)|(?<=xox[abeoprs].)|(?<=(?:nvapi|glpat).)"
    r"|(?<=github_pat.))[A-Za-z0-9_-]{16}"
)
_TOKEN_LIKE: Final = re.compile(r"eyJ[\w-]{8}")
_BEARER_LIKE: Final = re.compile(r"[bB][eE][aA][rR][eE][rR]\s{1,3}[\w.~+/=-]{16}")
_PASSWORD_LIKE: Final = re.compile(r"://[^\s/:@]{0,64}:[^\s/@]{1,128}@")
_EMAIL_LIKE: Final = re.compile(r"@(?<=[\w.+-]@)[A-Za-z0-9-]{1,63}\.[A-Za-z0-9-]")
_NUMBER_LIKE: Final = re.compile(r"\d(?:[ ().-]{0,2}\d){6}")  # how cards and telephone numbers start


def _has_number(text: str) -> bool:
    return _NUMBER_LIKE.search(text) is not None


def _has_email(text: str) -> bool:
    return _EMAIL_LIKE.search(text) is not None


def _may_hold_key(text: str) -> bool:
    is_joined = ("-" in text or "_" in text) and _KEY_LIKE.search(text) is not None
    return is_joined or any([mark in text for mark in _KEY_MARKS])


_CARD: Final = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,}+")
_PHONE_ABROAD: Final = re.compile(rf"(?:(?<![\w+])|{_ESCAPED})(?:\+|00)[1-9](?:[ ().-]{{0,2}}\d){{6,13}}(?!\d)")
_GROUPED_PHONE: Final = re.compile(rf"(?:(?<![\w-])|{_ESCAPED})\(?\d{{3}}\)?[ .-]\d{{3}}[ .-]\d{{4}}(?![\w-])")


class Pattern:
    """A form that is replaced by `[name]` if `holds` confirms it, or by the result of `replace`."""

    __slots__ = ("form", "holds", "may_match", "name", "replace")

    def __init__(
        self,
        name: str,
        form: re.Pattern[str],
        holds: Callable[[str], bool] = _always,
        replace: Callable[[str], str] | None = None,
        may_match: Callable[[str], bool] = _always,
    ) -> None:
        """Accept the form. If `may_match` returns False, the form is not in a text: this check is cheaper."""
        self.name = name
        self.form = form
        self.holds = holds
        self.replace = replace
        self.may_match = may_match


# Every repetition is bounded, or of one class that its neighbour does not share: no text takes more than linear time.
DEFAULT_PATTERNS: Final = (
    Pattern(
        "private_key",
        # (?>...) and not {...}+: Python 3.11.2's forgets where a possessive repetition with a look-ahead began to fail.
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?>(?:[A-Za-z0-9+/=\s\\:,.()]|-(?!----)){0,20000})"
            r"(?:-----END [A-Z ]{0,30}KEY(?: BLOCK)?-----)?"
        ),
        may_match=lambda text: "-----BEGIN" in text,
    ),
    Pattern(
        "token",
        re.compile(_WORD + r"eyJ[\w-]{8,4096}+(?:\.[\w-]{8,8192}+(?:\.[\w-]{0,8192}+){1,3})?"),
        _is_signed,
        may_match=lambda text: _TOKEN_LIKE.search(text) is not None,
    ),
    Pattern(
        "token",
        re.compile(r"(?i)" + _WORD + r"bearer\s{1,3}[\w.~+/=-]{16,4096}"),
        may_match=lambda text: "bearer" in text.lower() and _BEARER_LIKE.search(text) is not None,
    ),
    Pattern(
        "password",
        re.compile(r"(?<=://)[^\s/:@]{0,64}:[^\s/@]{1,128}(?=@)"),
        may_match=lambda text: _PASSWORD_LIKE.search(text) is not None,
    ),
    Pattern(
        "key",
        re.compile(
            _WORD
            + KEY_PREFIXES
            + r"[-_][A-Za-z0-9_-]{16,4096}|"
            + _WORD
            + r"(?:AKIA|ASIA)[A-Z0-9]{16}\b|"
            + _WORD
            + r"AIza[A-Za-z0-9_-]{35}"
        ),
        may_match=_may_hold_key,
    ),
    Pattern(
        "email",
        re.compile(r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
        may_match=_has_email,
    ),
    Pattern("card", _CARD, replace=_replace_cards, may_match=_has_number),
    Pattern("phone", _PHONE_ABROAD, may_match=_has_number),
    Pattern("phone", _GROUPED_PHONE, may_match=_has_number),
)
SECRETS: Final = frozenset({"private_key", "token", "password", "key"})  # names of the patterns of credentials
EMAIL: Final = "email"
_SHORTEST_SECRET: Final = 19  # characters; a password in a URL may be shorter, but an @ follows it
_SECRET_LIKE: Final = re.compile(
    r"-----BEGIN|eyJ[\w-]{8}|(?i:bearer)\s|" + KEY_PREFIXES + r"[-_][A-Za-z0-9_-]{16}|A(?:KIA|SIA|Iza)"
)
# Whatever that finds has one of these in it, or "bearer". Most texts have none, which takes less to see.
_MARKS: Final = ("eyJ", *_KEY_MARKS, "-----BEGIN")
_BINARY: Final = re.compile(r"(?:data:[\w.+/-]{1,100};base64,)?[A-Za-z0-9+/_=-]+")


_SHORTEST_NUMBER: Final = 8  # characters of a telephone number; cards have more
# Patterns that follow each other and ask the same of a text, which is asked once.
_BY_MARK: Final = tuple((ask, tuple(those)) for ask, those in groupby(DEFAULT_PATTERNS, lambda one: one.may_match))
_NUMBERS: Final = tuple(one for one in DEFAULT_PATTERNS if one.may_match is _has_number)
# All that the patterns of numbers match consists of these characters, but for a "+" or "(" before the first digit.
_NUMBER_RUN: Final = re.compile(r"\d[\d ().+-]{6,}")
_BEFORE_NUMBER: Final = 3  # characters before a run that these patterns inspect or start with
_BETWEEN_DIGITS: Final = " ().+-"
_SHORTEST_GROUPED: Final = 12  # characters of a telephone number without + or 00; grouped cards have more
_DOMAIN: Final = re.compile(r"@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_LONGEST_LOCAL: Final = 64  # characters before the @ of an e-mail address
_BEFORE_LOCAL: Final = re.compile(r"(?:.*[^\w.+-])?", re.DOTALL)


class Redactor:
    """Replaces what patterns find: ours first, then the operator's."""

    def __init__(self, own: Iterable[Pattern] = ()) -> None:
        self._own = tuple(own)

    def redact(self, text: str) -> str:
        """Return a text without what the patterns find; base64 data, such as images, is replaced by its size."""
        size = len(text)
        if size > _MOST_BINARY and is_binary(text):
            return f"[{size} characters of base64]"
        if size >= _SHORTEST_SECRET or "@" in text:
            for may_match, patterns in _BY_MARK:
                if may_match is _has_number:
                    text = _without_numbers(text)
                elif may_match is _has_email:
                    text = _without_emails(text)
                elif may_match(text):
                    text = _without(patterns, text)
        elif size >= _SHORTEST_NUMBER:
            text = _without_numbers(text)
        return _without(self._own, text) if self._own else text

    def redact_all(self, value: object) -> object:
        """Redact every text and integer in a JSON value, including names of fields."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, int) and not isinstance(value, bool):
            text = str(value)  # a tool may receive a card number as an integer
            return value if (redacted := self.redact(text)) == text else redacted
        if isinstance(value, list):
            return [self.redact_all(one) for one in value]
        if isinstance(value, dict):
            return {self.redact(str(name)): self.redact_all(one) for name, one in value.items()}
        return value


def is_binary(text: str) -> bool:
    """Return whether a text is a long piece of base64, such as an image, rather than words."""
    return len(text) > _MOST_BINARY and _BINARY.fullmatch(text) is not None


def may_hold_secrets(text: str) -> bool:
    """Return whether a text may contain a secret or an e-mail address, at a fraction of a search's cost.

    False means that it contains none.
    """
    return "@" in text or (len(text) >= _SHORTEST_SECRET and _has_mark(text) and _SECRET_LIKE.search(text) is not None)


def _has_mark(text: str) -> bool:
    return any(mark in text for mark in _MARKS) or _KEY_LIKE.search(text) is not None or "bearer" in text.lower()


def read_patterns(text: str) -> list[Pattern]:
    """Parse an operator's patterns: one per line, `name = regular expression`; lines that start with # are comments.

    Raises ConfigurationError on an invalid line.
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


def _without(patterns: Iterable[Pattern], text: str) -> str:
    for pattern in patterns:
        text = pattern.form.sub(partial(_replacement, pattern), text)
    return text


def _without_numbers(text: str) -> str:
    """Return a text without card and telephone numbers, which are searched for only near digits."""
    left: list[str] = []
    done = 0
    for run in _NUMBER_RUN.finditer(text):
        first, end = run.span()
        if not _holds_number(text, first, end):
            continue
        start = max(first - _BEFORE_NUMBER, 0)
        behind = text[end : end + 1]  # inspected, but not part of a number
        cut = _without(_NUMBERS, text[start:end] + behind)
        left += [text[done:start], cut[max(done - start, 0) : len(cut) - len(behind)]]
        done = end
    return "".join([*left, text[done:]]) if left else text


def _holds_number(text: str, first: int, end: int) -> bool:
    """Return whether a run of digits holds a card or telephone number: most of those in code and in lists do not.

    A telephone number begins with + or 00, or is grouped; a card number has 13 digits or more.
    """
    run, start = text[first:end].rstrip(_BETWEEN_DIGITS), max(first - _BEFORE_NUMBER, 0)
    if "00" in run or "+" in run or text[first - 1 : first] == "+":
        if _PHONE_ABROAD.search(text, start, end + 1) is not None:
            return True
    if run.replace(".", "", 1).isdigit():  # a whole number or a decimal fraction
        return any([len(part) >= _SHORTEST_CARD and is_card_number(part) for part in run.split(".")])
    if len(run) < _SHORTEST_GROUPED:
        return False
    if len(run) - sum([run.count(one) for one in _BETWEEN_DIGITS]) >= _SHORTEST_CARD:
        if any([card_spans(found[0]) for found in _CARD.finditer(text, first, end)]):
            return True
    return _GROUPED_PHONE.search(text, start, end + 1) is not None


def _without_emails(text: str) -> str:
    """Return a text without e-mail addresses, which are looked for only where an @ is."""
    left: list[str] = []
    done = 0
    for domain in _DOMAIN.finditer(text):
        at, end = domain.span()
        before = _BEFORE_LOCAL.match(text, max(at - _LONGEST_LOCAL, done), at)
        assert before is not None, "it also matches nothing"
        if before.end() < at:
            left += [text[done : before.end()], "[email]"]
            done = end
    return "".join([*left, text[done:]]) if left else text


def _replacement(pattern: Pattern, found: re.Match[str]) -> str:
    return _replaced(pattern, found[0])


def _replaced(pattern: Pattern, text: str) -> str:
    if pattern.replace is not None:
        return pattern.replace(text)
    return f"[{pattern.name}]" if pattern.holds(text) else text
