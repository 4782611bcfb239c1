"""Decide whether two questions that an embedding takes for the same may share an answer.

An embedding hardly sees the order of words: "a flight from Rome to Paris" is at a cosine of 0.995 of the way back, and
a sentence with another currency, place or person is as near as a paraphrase. Here the words themselves are compared.
The comparison errs on the side of asking the model.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

_LISTS: Final = Path(__file__).with_name("question_words.yaml")
# Words with their inner apostrophes and hyphens; "C++", "C#"; digits apart from the unit that is glued to them.
_WORDS: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*(?:\+\+|#)?|\d+")
_POSSESSIVE: Final = re.compile(r"([^\W\d_]+)['\u2019]s\s+((?:[^\W\d_]+\s+){0,1}[^\W\d_]+)")
_SENTENCE_ENDS: Final = re.compile(r"[.!?:\n]\s*$")
_CONTRACTIONS: Final = {"'s": "", "'re": "", "'m": "", "'ll": "", "'ve": "", "'d": "", "n't": ""}
# Suffixes of inflection, longest first, and what they leave.
_SUFFIXES: Final = (
    ("ies", "y"),
    ("ying", "y"),
    ("ing", ""),
    ("ied", "y"),
    ("ed", ""),
    ("es", ""),
    ("s", ""),
    ("e", ""),
)
_LEAST_STEM: Final = 3


class _Lists(msgspec.Struct, frozen=True):
    openings: tuple[str, ...]  # longest first
    fillers: frozenset[str]
    turning: frozenset[str]
    units: frozenset[str]
    synonyms: dict[str, frozenset[int]]  # the numbers of the groups that a stem is in


class _Word(msgspec.Struct, frozen=True, gc=False):
    stem: str
    is_name: bool  # written with a capital where a sentence does not ask for one
    is_telling: bool  # a unit, a direction, a person: what nobody adds without meaning it


def may_share_answer(first: str, second: str) -> bool:
    """Return whether the words of two questions leave them the same meaning.

    They do not if the same words come in another order; if one has a name, a unit, a currency, a direction or a
    person that the other has not; or if each has a word of its own and the two are not known to mean the same.
    """
    one, two = _words(first), _words(second)
    ours, theirs = _unmatched(one, two)
    if any(word.is_name or word.is_telling for word in (*ours, *theirs)):
        return False
    if ours and theirs:
        return False
    return _order(one, two) == _order(two, one)


def _words(text: str) -> list[_Word]:
    """Return the words of a question that its answer depends on, in their order."""
    lists = _lists()
    text = _without_opening(text.replace("\u2019", "'"), lists)
    text = _POSSESSIVE.sub(r"\2 of \1", text)  # "France's capital" is the capital of France
    is_shouted = text.isupper()
    found = []
    for match in _WORDS.finditer(text):
        written = match.group()
        if written.isdigit():
            continue  # figures are compared by the fingerprint
        plain = _without_contraction(written)
        folded = plain.lower()
        is_acronym = len(plain) > 1 and plain.isupper() and not is_shouted
        if folded in lists.fillers and not is_acronym:
            continue
        begins = match.start() == 0 or _SENTENCE_ENDS.search(text[: match.start()]) is not None
        is_name = not is_shouted and (is_acronym or (plain[:1].isupper() and not begins))
        is_telling = folded in lists.turning or folded in lists.units or len(folded) == 1
        found.append(_Word(_stem(folded) if not is_telling else _singular(folded), is_name, is_telling))
    return found


def _without_opening(text: str, lists: _Lists) -> str:
    rest = text.strip()
    while True:
        folded = rest.lower()
        opening = next((one for one in lists.openings if folded.startswith(one + " ")), None)
        if opening is None:
            return rest
        rest = rest[len(opening) :].lstrip(" ,:")


def _without_contraction(word: str) -> str:
    folded = word.lower()
    ending = next((ending for ending in _CONTRACTIONS if folded.endswith(ending)), None)
    return word if ending is None else word[: -len(ending)]


def _unmatched(one: list[_Word], two: list[_Word]) -> tuple[list[_Word], list[_Word]]:
    """Return the words of each question that the other has not, neither themselves nor by a synonym."""
    ours, theirs = list(one), list(two)
    counted = Counter(word.stem for word in one) & Counter(word.stem for word in two)
    ours, theirs = _less(ours, counted), _less(theirs, counted)
    known = _lists().synonyms
    left = []
    for word in ours:
        groups = known.get(word.stem, frozenset())
        match = next((other for other in theirs if groups & known.get(other.stem, frozenset())), None)
        if match is None:
            left.append(word)
        else:
            theirs.remove(match)
    return left, theirs


def _less(words: list[_Word], counted: Counter[str]) -> list[_Word]:
    rest = Counter(counted)
    left = []
    for word in words:
        if rest[word.stem] > 0:
            rest[word.stem] -= 1
        else:
            left.append(word)
    return left


def _order(words: list[_Word], others: list[_Word]) -> list[str]:
    """Return the order of those words that stand equally often in both questions."""
    here, there = Counter(word.stem for word in words), Counter(word.stem for word in others)
    return [word.stem for word in words if here[word.stem] == there[word.stem]]


def _singular(word: str) -> str:
    """Return a unit's singular: a mile is of the same kind as miles."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _stem(word: str) -> str:
    """Return a word without its inflection: parcels and parcel, resetting and reset."""
    for suffix, rest in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) + len(rest) >= _LEAST_STEM and not word.endswith("ss"):
            word = word[: len(word) - len(suffix)] + rest
            break
    if len(word) > _LEAST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > _LEAST_STEM and word.endswith("e") else word


@cache
def _lists() -> _Lists:
    given = yaml.safe_load(_LISTS.read_text(encoding="utf-8"))
    groups: dict[str, set[int]] = {}
    for number, line in enumerate(given["synonyms"]):
        for word in line.split():
            groups.setdefault(_stem(word), set()).add(number)
    return _Lists(
        openings=tuple(sorted(given["openings"], key=len, reverse=True)),
        fillers=frozenset(given["fillers"].split()) - frozenset(given["turning"].split()),
        turning=frozenset(given["turning"].split()),
        units=frozenset(given["units"].split()),
        synonyms={stem: frozenset(numbers) for stem, numbers in groups.items()},
    )
