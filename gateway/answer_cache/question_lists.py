"""The word lists by which two questions are compared, from `question_words.yaml`."""

import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

_LISTS: Final = Path(__file__).with_name("question_words.yaml")
# Suffixes of inflection, longest first, and what they leave.
_SUFFIXES: Final = (("ies", "y"), ("ying", "y"), ("ing", ""), ("ied", "y"), ("ed", ""), ("es", ""), ("s", ""))
_LEAST_STEM: Final = 3


class Lists(msgspec.Struct, frozen=True):
    openings: tuple[str, ...]  # longest first
    expressions: dict[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]  # by their first word, longest first
    fillers: frozenset[str]
    harmless: frozenset[str]  # content words that may be added
    articles: frozenset[str]
    conjunctions: frozenset[str]
    negations: frozenset[str]
    clauses: dict[str, str]  # words that open a clause, by what they are compared as
    roles: dict[str, str]  # prepositions, by what they are compared as
    alike_roles: frozenset[frozenset[str]]
    compounding: frozenset[str]  # roles whose word may stand before what it belongs to, without a preposition
    phrase_ends: frozenset[str]  # adverbs, which belong to no preposition before them
    firm: frozenset[str]  # roles that say who does what to whom; others' phrases may stand anywhere
    first_person: frozenset[str]
    second_person: frozenset[str]
    turning: frozenset[str]
    units: frozenset[str]
    synonyms: dict[str, frozenset[int]]  # the numbers of the groups that a word is in
    present: frozenset[str]
    past: frozenset[str]
    future: frozenset[str]
    conditional: frozenset[str]
    movable: frozenset[str]
    movable_starts: frozenset[str]
    to_or_for: frozenset[str]
    asking: frozenset[str]
    own_plurals: frozenset[str]
    both_ways: frozenset[str]
    before_infinitive: frozenset[str]
    permission: frozenset[str]
    obligation: frozenset[str]
    auxiliaries: frozenset[str]
    question_words: frozenset[str]
    nominative: frozenset[str]
    oblique: frozenset[str]
    particle_verbs: frozenset[str]
    particles: frozenset[str]
    participles: frozenset[str]  # irregular ones
    comparatives: dict[str, tuple[str, bool]]  # what is compared, and whether it is the lesser
    symmetric: frozenset[str]
    symmetric_verbs: frozenset[str]
    ordered: frozenset[str]
    apposed: frozenset[str]
    not_typos: frozenset[str]


@cache
def question_lists(*, is_ascii: bool) -> Lists:
    """Return the word lists; for a text in ASCII alone, also with their words as one writes them without marks."""
    given = yaml.safe_load(_LISTS.read_text(encoding="utf-8"))

    def words(name: str) -> frozenset[str]:
        return _spelt(given[name].split(), is_ascii)

    groups: dict[str, set[int]] = {}
    for number, line in enumerate(given["synonyms"]):
        for word in _spelt(line.split(), True):
            groups.setdefault(word, set()).add(number)
    firm = {word: line.split()[0] for line in given["firm_prepositions"] for word in _spelt(line.split(), is_ascii)}
    loose = {word: line.split()[0] for line in given["loose_prepositions"] for word in _spelt(line.split(), is_ascii)}
    clauses = {word: line.split()[0] for line in given["clauses"] for word in _spelt(line.split(), is_ascii)}
    turning = words("turning")
    return Lists(
        openings=tuple(sorted(_spelt(given["openings"], is_ascii), key=lambda one: (-len(one), one))),
        expressions=_expressions(given["expressions"], is_ascii),
        fillers=words("fillers") - turning,
        harmless=words("harmless"),
        articles=words("articles"),
        conjunctions=words("conjunctions"),
        negations=words("negations"),
        clauses=clauses,
        roles={**loose, **firm},
        alike_roles=frozenset(frozenset(line.split()) for line in given["alike_prepositions"]),
        compounding=words("compounding"),
        phrase_ends=words("phrase_ends"),
        firm=frozenset(firm.values()),
        first_person=words("first_person"),
        second_person=words("second_person"),
        turning=turning,
        units=words("units"),
        synonyms={word: frozenset(numbers) for word, numbers in groups.items()},
        present=words("present"),
        past=words("past"),
        future=words("future"),
        conditional=words("conditional"),
        movable=words("movable"),
        movable_starts=words("movable_starts"),
        to_or_for=words("to_or_for"),
        asking=words("asking"),
        own_plurals=words("own_plurals"),
        both_ways=words("both_ways"),
        before_infinitive=words("before_infinitive"),
        permission=words("permission"),
        obligation=words("obligation"),
        auxiliaries=words("auxiliaries"),
        question_words=words("question_words"),
        nominative=words("nominative"),
        oblique=words("oblique"),
        particle_verbs=words("particle_verbs"),
        particles=words("particles"),
        participles=words("participles"),
        comparatives=_comparatives(given["comparatives"], is_ascii),
        symmetric=words("symmetric"),
        symmetric_verbs=words("symmetric_verbs"),
        ordered=words("ordered"),
        apposed=words("apposed"),
        not_typos=words("not_typos"),
    )


def singular_of(word: str) -> str:
    """Return a unit's singular: a mile is of the same kind as miles."""
    word = word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
    return word[:-2] + "er" if word.endswith(("metre", "litre")) else word


def stem_of(word: str) -> str:
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


@lru_cache(maxsize=8192)
def bases_of(word: str) -> frozenset[str]:
    """Return what a word may be an inflection of, itself included: "hoping" of "hope", "hopping" of "hop"."""
    found = {word}
    if word in question_lists(is_ascii=False).own_plurals:
        return frozenset(found)
    if len(word) > 3 and word[-1] == "s" and word[-2] not in "su":
        found.add(word[:-1])
        if word.endswith("ies"):
            found.add(word[:-3] + "y")
        elif word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
            found.add(word[:-2])
    for suffix in ("ed", "ing"):
        rest = word[: -len(suffix)]
        if not word.endswith(suffix) or len(rest) < _LEAST_STEM - 1:
            continue
        found.add(rest + "e")
        if suffix == "ed" and rest.endswith("i"):
            found.add(rest[:-1] + "y")
        is_short = (
            len(rest) == _LEAST_STEM and rest[-1] not in "aeiouwxy" and rest[-2] in "aeiou" and rest[-3] not in "aeiou"
        )
        if not is_short:
            found.add(rest)
        if len(rest) > _LEAST_STEM and rest[-1] == rest[-2]:
            found.add(rest[:-1])
    return frozenset(_with_one_spelling(base) for base in found)


@lru_cache(maxsize=8192)
def meanings_of(word: str) -> frozenset[int]:
    """Return the numbers of the groups of synonyms that a word is in, in any inflection."""
    known = question_lists(is_ascii=False).synonyms
    found = {number for base in bases_of(word) for number in known.get(base, ())}
    if word.endswith("est") and len(word) > len("est") + _LEAST_STEM - 1:  # "fastest" is "quickest", and never "quick"
        rest = word[: -len("est")]
        bases = {rest, rest + "e", rest[:-1], rest[:-1] + "y" if rest.endswith("i") else rest}
        found |= {-1 - number for base in bases for number in known.get(base, ())}
    return frozenset(found)


def _with_one_spelling(word: str) -> str:
    return word[:-2] + "se" if word.endswith("ize") else word


def without_marks(text: str) -> str:
    """Return a text without accents and other marks on its letters."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))


def _spelt(words: list[str], is_ascii: bool) -> frozenset[str]:
    if not is_ascii:
        return frozenset(words)
    # "où" without its mark is "or", and "sí" is "if": what means something else is left out.
    return frozenset(words) | {without_marks(word) for word in words} - {"ou", "e", "a", "si", "se"}


def _expressions(lines: list[str], is_ascii: bool) -> dict[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]:
    found: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for line in lines:
        left, right = (side.strip() for side in line.split("="))
        for spelt in _spelt([left], is_ascii):
            words = tuple(spelt.split())
            found.setdefault(words[0], []).append((words, tuple(right.split())))
    return {first: tuple(sorted(ones, key=lambda one: -len(one[0]))) for first, ones in found.items()}


def _comparatives(lines: list[str], is_ascii: bool) -> dict[str, tuple[str, bool]]:
    found: dict[str, Any] = {}
    for line in lines:
        greater, lesser = line.split("/")
        for side, is_lesser in ((greater, False), (lesser, True)):
            for word in _spelt(side.split(), is_ascii):
                found[word] = (greater.split()[0], is_lesser)
    return found
