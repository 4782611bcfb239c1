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
# Words with their inner apostrophes and hyphens; "C++", "C#"; figures; and what ends a phrase.
_TOKENS: Final = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*(?:\+\+|#)?|\d+|[,;:.!?\n()]")
_POSSESSIVE: Final = re.compile(r"\b([^\W\d_]+)(?:'s|s')\s+([^\W\d_]+)")
_CONTRACTED: Final = re.compile(
    r"\b(what|who|where|when|why|how|which|that|there|here|it|he|she|let|one)'s\b", re.IGNORECASE
)
_INVERTED: Final = re.compile(r"-(?:t-)?(?:je|tu|il|elle|on|nous|vous|ils|elles|ce|moi)\b", re.IGNORECASE)
_ELIDED: Final = re.compile(r"\b(?:l|d|qu|j|n|s|m|t|c|un|dell|all|nell|dall|sull)'(?=[^\W\d_]{2})", re.IGNORECASE)
_ENDINGS: Final = ("'re", "'m", "'ll", "'ve", "'d", "'s", "n't")
# Suffixes of inflection, longest first, and what they leave.
_SUFFIXES: Final = (("ies", "y"), ("ying", "y"), ("ing", ""), ("ied", "y"), ("ed", ""), ("es", ""), ("s", ""))
_LEAST_STEM: Final = 3


class _Lists(msgspec.Struct, frozen=True):
    openings: tuple[str, ...]  # longest first
    fillers: frozenset[str]
    articles: frozenset[str]
    conjunctions: frozenset[str]
    roles: dict[str, str]  # prepositions, by what they are compared as
    compounding: frozenset[str]  # roles whose word may stand before what it belongs to, without a preposition
    phrase_ends: frozenset[str]  # adverbs, which belong to no preposition before them
    firm: frozenset[str]  # roles that say who does what to whom; others' phrases may stand anywhere
    first_person: frozenset[str]
    second_person: frozenset[str]
    turning: frozenset[str]
    units: frozenset[str]
    synonyms: dict[str, frozenset[int]]  # the numbers of the groups that a stem is in


class _Word(msgspec.Struct, frozen=True, gc=False):
    stem: str
    name: str  # as written, if with a capital where a sentence does not ask for one; else empty
    is_telling: bool  # a unit, a direction, a person: what nobody adds without meaning it
    role: str = ""  # the preposition that it follows
    phrase: int = 0  # the number of the preposition that its phrase begins with, from 1; 0: none
    joined: int = 0  # the number of the enumeration that it is a part of, from 1; 0: none


class _Question(msgspec.Struct, frozen=True):
    words: tuple[_Word, ...]
    persons: str  # of first and second person, in their order: "12" in "I owe you"


def may_share_answer(first: str, second: str) -> bool:
    """Return whether the words of two questions leave them the same meaning.

    They do not if the same words come in another order; if one has a name, a unit, a currency, a direction or a
    person that the other has not; or if each has a word of its own and the two are not known to mean the same.
    """
    one, two = _read(first), _read(second)
    ours, theirs = _unmatched(one.words, two.words)
    if any(word.name or word.is_telling for word in (*ours, *theirs)):
        return False
    if ours and theirs:
        return False
    if len(set(one.persons)) == len(set(two.persons)) == 2 and one.persons != two.persons:
        return False
    return _is_same_order(one.words, two.words)


def _read(text: str) -> _Question:
    """Return the words of a question that its answer depends on, in their order, each with its role."""
    lists = _lists()
    text = _CONTRACTED.sub(r"\1", text.replace("\u2019", "'").strip())
    text = _ELIDED.sub("", _INVERTED.sub("", _without_opening(text, lists)))
    text = _POSSESSIVE.sub(r"\2 of \1", text)  # "France's capital" is the capital of France
    is_shouted = text.isupper()
    words: list[_Word] = []
    persons = ""
    role, phrases, joined, enumerations, begins = "", 0, 0, 0, True
    for token in _TOKENS.findall(text):
        if not token[0].isalpha():
            if not token.isdigit():  # figures are compared by the fingerprint
                role, joined, begins = "", 0, begins or token not in ",;()"
            continue
        plain = _without_ending(token)
        folded = plain.lower()
        is_acronym = len(plain) > 1 and plain.isupper() and not is_shouted and folded != "ok"
        is_name = not is_shouted and (is_acronym or (plain[:1].isupper() and not begins))
        begins = False
        if not is_acronym:
            if folded in lists.conjunctions and words:
                joined = words[-1].joined
                if not joined:
                    enumerations += 1
                    joined = enumerations
                    words[-1] = msgspec.structs.replace(words[-1], joined=joined)
                continue
            if folded in lists.roles:
                role, phrases, joined = lists.roles[folded], phrases + 1, 0
                if folded not in lists.turning:
                    continue
                words.append(_Word(folded, "", True))
                continue
            if folded in lists.first_person or folded in lists.second_person:
                person = "1" if folded in lists.first_person else "2"
                persons += "" if persons.endswith(person) else person
            if folded in lists.fillers:
                if folded not in lists.articles:
                    role, joined = "", 0
                continue
        is_telling = folded in lists.turning or folded in lists.units or len(folded) == 1
        stem = _singular(folded) if is_telling else _stem(folded)
        if folded in lists.phrase_ends:
            role = ""
        words.append(_Word(stem, folded if is_name else "", is_telling, role, phrases if role else 0, joined))
        joined = 0
    return _Question(tuple(words), persons)


def _without_opening(text: str, lists: _Lists) -> str:
    rest = text
    while True:
        folded = rest.lower()
        opening = next((one for one in lists.openings if folded.startswith((one + " ", one + ","))), None)
        if opening is None:
            return rest
        rest = rest[len(opening) :].lstrip(" ,:")


def _without_ending(word: str) -> str:
    folded = word.lower()
    ending = next((ending for ending in _ENDINGS if folded.endswith(ending)), None)
    return word if ending is None else word[: -len(ending)]


def _unmatched(one: tuple[_Word, ...], two: tuple[_Word, ...]) -> tuple[list[_Word], list[_Word]]:
    """Return the words of each question that the other has not, neither themselves nor by a synonym."""
    ours, theirs = list(one), list(two)
    for is_alike in (_is_same, _is_synonym):
        left = []
        for word in ours:
            match = next((place for place, other in enumerate(theirs) if is_alike(word, other)), None)
            if match is None:
                left.append(word)
            else:
                del theirs[match]
        ours = left
    return ours, theirs


def _is_same(word: _Word, other: _Word) -> bool:
    """Return whether two words are one, in any inflection; two names only as they are written."""
    return word.stem == other.stem and (not (word.name and other.name) or word.name == other.name)


def _is_synonym(word: _Word, other: _Word) -> bool:
    """Return whether two words may stand for each other. Names stand for nothing but themselves."""
    if word.name or other.name:
        return False
    known = _lists().synonyms
    return bool(known.get(word.stem, frozenset()) & known.get(other.stem, frozenset()))


def _is_same_order(one: tuple[_Word, ...], two: tuple[_Word, ...]) -> bool:
    """Return whether the words that stand once in both come in an order that leaves the meaning as it is.

    Words after "from", "to", "than" and their like must follow the same one in both. A phrase with "in", "of" and their
    like may stand anywhere, and may be the first part of a compound ("the rules of chess", "the chess rules"). Parts of
    an enumeration may change places.
    """
    lists = _lists()
    here, there = _places(one), _places(two)
    common = [name for name in here if name in there]
    repeated = {role for words in (one, two) for role, count in _uses(words).items() if count > 1}
    loose_here, loose_there, moved_role = set(), set(), set()
    for name in common:
        ours, theirs = here[name][1].role, there[name][1].role
        if ours != theirs and (ours in lists.firm or theirs in lists.firm):
            return False
        if ours and theirs and ours != theirs:
            moved_role.add(name)
        if ours and ours not in lists.firm and theirs in ("", ours):
            loose_here.add(name)
        if theirs and theirs not in lists.firm and ours in ("", theirs):
            loose_there.add(name)
    may_move = loose_here & loose_there
    if loose_here <= loose_there or loose_there <= loose_here:
        compound = {here[name][1].role or there[name][1].role for name in loose_here ^ loose_there}
        if compound <= lists.compounding:
            may_move = loose_here | loose_there
    for place, left in enumerate(common):
        for right in common[place + 1 :]:
            if there[left][0] < there[right][0]:
                continue
            a, b, c, d = here[left][1], here[right][1], there[left][1], there[right][1]
            is_enumerated = 0 < a.joined == b.joined and 0 < c.joined == d.joined and a.role not in repeated
            if is_enumerated:
                continue
            if (a.role and a.role == b.role) or left in moved_role or right in moved_role:
                return False  # which of them it is said of depends on their order
            # A word with a firm role has the same in both, and moves with what marks it.
            has_firm_role = (
                a.role in lists.firm or b.role in lists.firm or left[0] in lists.roles or right[0] in lists.roles
            )
            if not (has_firm_role or left in may_move or right in may_move):
                return False
    return True


def _places(words: tuple[_Word, ...]) -> dict[tuple[str, int], tuple[int, _Word]]:
    """Return each word's place by its stem and by how often that stood before."""
    seen: Counter[str] = Counter()
    found = {}
    for place, word in enumerate(words):
        found[word.stem, seen[word.stem]] = (place, word)
        seen[word.stem] += 1
    return found


def _uses(words: tuple[_Word, ...]) -> Counter[str]:
    """Return how many phrases each preposition begins."""
    return Counter(role for _, role in {(word.phrase, word.role) for word in words if word.role})


def _singular(word: str) -> str:
    """Return a unit's singular: a mile is of the same kind as miles."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _stem(word: str) -> str:
    """Return a word without its inflection: parcels and parcel, resetting and reset; and with one spelling of -ise."""
    for suffix, rest in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) + len(rest) >= _LEAST_STEM and not word.endswith("ss"):
            word = word[: len(word) - len(suffix)] + rest
            break
    if len(word) > _LEAST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    if len(word) > _LEAST_STEM and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "s" if len(word) > _LEAST_STEM + 1 and word.endswith("iz") else word


@cache
def _lists() -> _Lists:
    given = yaml.safe_load(_LISTS.read_text(encoding="utf-8"))
    groups: dict[str, set[int]] = {}
    for number, line in enumerate(given["synonyms"]):
        for word in line.split():
            groups.setdefault(_stem(word), set()).add(number)
            groups.setdefault(_singular(word), set()).add(number)
    words = {name: frozenset(given[name].split()) for name in ("fillers", "turning", "units", "articles")}
    firm = {word: line.split()[0] for line in given["firm_prepositions"] for word in line.split()}
    loose = {word: line.split()[0] for line in given["loose_prepositions"] for word in line.split()}
    return _Lists(
        openings=tuple(sorted(given["openings"], key=len, reverse=True)),
        fillers=words["fillers"] - words["turning"],
        articles=words["articles"],
        conjunctions=frozenset(given["conjunctions"].split()),
        roles={**loose, **firm},
        compounding=frozenset(given["compounding"].split()),
        phrase_ends=frozenset(given["phrase_ends"].split()),
        firm=frozenset(firm.values()),
        first_person=frozenset(given["first_person"].split()),
        second_person=frozenset(given["second_person"].split()),
        turning=words["turning"],
        units=words["units"],
        synonyms={stem: frozenset(numbers) for stem, numbers in groups.items()},
    )
