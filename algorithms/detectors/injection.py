"""Detects prompt injection by weighted phrases, role markers and hidden instructions.

A heuristic: it finds attempts that are stated openly or encoded simply, in some twenty languages, but not subtle ones.
Phrases quoted in a text about such attempts count less.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

from algorithms.detectors.hidden_text import LEAST_PAIRS, hidden_texts
from algorithms.detectors.injection_languages import OTHER_LANGUAGES, UNSPACED
from algorithms.detectors.injection_phrases import ENGLISH, JOINED, STEM_LETTERS, Phrase
from contracts.guardrails.plain_text import plain_text

DEFAULT_THRESHOLD: Final = 0.7  # of the score

_HIDDEN_WEIGHT: Final = 0.5  # for an instruction that is hidden, in addition to its own weight
_QUOTED_SHARE: Final = 0.3  # factor for a phrase that is quoted in a text about such phrases
_MARKER_WEIGHT: Final = 0.75
_TURN_WEIGHT: Final = 0.4  # for a line that begins like one of the system
_FOREIGN_TURN_WEIGHT: Final = 0.2  # for one that begins like another speaker's, only with a phrase: transcripts have it
_NEGATIONS: Final = ("do not ", "don't ", "never ", "not to ", "must not ", "should not ")
_QUOTES: Final = '"`«「『'
_OPENS: Final = re.compile(r"(?:^|[\s(:])'(?=\S|$)")  # an apostrophe within a word is not a quotation
_CLOSES: Final = re.compile(r"\S'(?=[\s,.;:!?)]|$)")
_LOOK_BACK: Final = 120  # characters before a phrase that are searched for an opening quote
_REACH: Final = 400  # maximum length of a phrase in characters
_MOST_PLACES: Final = 50  # occurrences of a stem that are checked per text
_LEAST_LETTERS: Final = 12  # minimum number of single letters that are read as spelled-out words
# Without the characters of base64 and escapes, so that encoded text stays one long word.
_PUNCTUATION: Final = str.maketrans(dict.fromkeys("!\"#$%&()*,.:;<>?[]^`{|}~'", " "))
# Markers that chat templates put between turns (ChatML, Llama 2 and 3, Gemma, Phi, Mistral, Alpaca).
_MARKERS: Final = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text|end)\|>"
    r"|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>|\[/?system_prompt\]|</?(?:system|system_prompt|system-prompt)>"
)
_MARKER_SIGNS: Final = ("<|", "inst]", "sys>>", "_of_turn>", "system_prompt]", "<system", "</system")
_TURNS: Final = re.compile(r"(?:^|\n)[ \t#*>-]{0,6}(?:assistant|human|ai|instruction)[ \t*]{0,4}:", re.IGNORECASE)
_SYSTEM_TURN: Final = re.compile(
    r"(?:^|\n)[ \t#*>\[-]{0,6}(?:system|developer)(?: (?:message|prompt|note|instruction))?[ \t*]{0,4}[:\]]",
    re.IGNORECASE,
)
_TURN_STEMS: Final = frozenset({"syste", "assis", "devel", "human", "ai", "instr"})
# Words that are typical of texts about attacks.
_DISCOURSE: Final = re.compile(
    r"prompt injections?|injection attacks?|attackers?|adversar|jailbreak(?:s|ing)|red[ -]team|owasp|vulnerabilit"
    r"|mitigat|security (?:research|team|blog|review)|guardrails?|detect(?:s|ion|or|ing)?\b|classif|for example|e\.g\."
    r"|such as|phrases? like|research(?:ers)?|paper|exploit|malicious|the (?:phrase|sentence|string|words?)\b|known as"
    r"|defen[cs]e"
)
_LEAST_DISCOURSE: Final = 2  # minimum number of different ones
_ONE_BY_ONE: Final = re.compile(r"(?:\b\w[ .\-_*|/]{1,3}){11,400}\w\b")
_PAIRS: Final = frozenset(f"{number:02x}" for number in range(256))
_LEET: Final = str.maketrans("013457@$", "oieastas")
_LEET_SIGNS: Final = ("0", "1", "3", "4", "5", "7", "@", "$")


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The result for a text: a score, 0 to 1, and the signals found with their weights."""

    score: float
    signals: Mapping[str, float]


NO_SUSPICION: Final = Suspicion(0.0, MappingProxyType({}))


def _by_stem(phrases: Iterable[Phrase]) -> dict[str, tuple[Phrase, ...]]:
    found: dict[str, tuple[Phrase, ...]] = {}
    for each in phrases:
        for stem in each.stems:
            found[stem] = (*found.get(stem, ()), each)
    return found


_PHRASES: Final = _by_stem(chain(ENGLISH, OTHER_LANGUAGES))
_UNSPACED: Final = _by_stem(UNSPACED)
_STEMS: Final = frozenset(_PHRASES)


def injection_in(text: str, ignored: Container[str] = ()) -> Suspicion:
    """Return the score of a plain text (`plain_text`): 1 minus the product of (1 - weight) over all signals.

    Signals named in `ignored` do not count. The weights are chosen by hand; scores order texts, and are not
    probabilities.
    """
    folded = _folded(text)
    spaced = folded.translate(_PUNCTUATION)
    words = spaced.split()
    lengths = list(map(len, words))
    signals = _signals(text, folded, words)
    if lengths.count(1) >= _LEAST_LETTERS and (spelled := _ONE_BY_ONE.search(text)) is not None:
        _look_at_letters(spelled[0], signals)
    pairs = 0
    if lengths.count(2) >= LEAST_PAIRS and " 6" in spaced and " 7" in spaced:  # the first digits of ASCII letters
        pairs = sum(map(_PAIRS.__contains__, words))
    for hidden in hidden_texts(text, max(lengths, default=0), pairs):
        plain = plain_text(hidden)
        folded = _folded(plain)
        inner = _signals(plain, folded, folded.translate(_PUNCTUATION).split())
        if inner:
            signals["hidden"] = _HIDDEN_WEIGHT
            _merge(signals, {f"hidden_{name}": weight for name, weight in inner.items()})
    if ignored:
        signals = {name: weight for name, weight in signals.items() if name not in ignored}
    if not signals:
        return NO_SUSPICION
    doubt = 1.0
    for weight in signals.values():
        doubt *= 1 - weight
    return Suspicion(1 - doubt, signals)


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _signals(text: str, folded: str, words: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    stems = {word[:STEM_LETTERS] for word in words}
    _look_for(folded, _STEMS & stems, _PHRASES, found)
    if not folded.isascii():
        _look_for(folded, [stem for stem in _UNSPACED if stem in folded], _UNSPACED, found)
    if any([sign in folded for sign in _LEET_SIGNS]):
        mixed = [stem for stem in stems if not stem.isalpha() and not stem.isdigit()]
        plain = {stem.translate(_LEET) for stem in mixed} & _STEMS
        if plain:
            _look_for(folded.translate(_LEET), plain, _PHRASES, found)
    has_marker = ("<" in folded or "[" in folded) and any([sign in folded for sign in _MARKER_SIGNS])
    if has_marker and _MARKERS.search(folded) is not None:
        found["role_marker"] = _MARKER_WEIGHT
    if not _TURN_STEMS.isdisjoint(stems):
        if _SYSTEM_TURN.search(text) is not None:
            found["system_turn"] = _TURN_WEIGHT
        elif found and _TURNS.search(text) is not None:
            found["foreign_turn"] = _FOREIGN_TURN_WEIGHT
    return found


def _look_for(
    folded: str, stems: Iterable[str], phrases: Mapping[str, tuple[Phrase, ...]], found: dict[str, float]
) -> None:
    for stem in stems:
        likely = [each for each in phrases[stem] if not each.needs or any([need in folded for need in each.needs])]
        at, places = folded.find(stem) if likely else -1, 0
        while at >= 0 and places < _MOST_PLACES:
            for each in likely:
                if found.get(each.name, 0.0) < each.weight:
                    _match(each, folded, at, found)
            at, places = folded.find(stem, at + 1), places + 1


def _match(each: Phrase, folded: str, at: int, found: dict[str, float]) -> None:
    """Add a phrase's signal if it matches here, or at one of the words before at which it may begin."""
    start, end = at, at + _REACH
    if each.back and not folded[at].isascii():  # possibly a script without spaces
        match = each.form.search(folded, max(0, at - each.back), end)
    else:
        match = each.form.match(folded, start, end)
    while match is None and start > 0 and at - start < each.back:
        start = folded.rfind(" ", 0, start - 1) + 1
        match = each.form.match(folded, start, end)
    if match is None:
        return
    weight = each.weight
    if folded.endswith(_NEGATIONS, 0, match.start()):
        return  # "do not ignore the instructions above" is the opposite
    if _is_quoted(folded, match.start()) and len(set(_DISCOURSE.findall(folded))) >= _LEAST_DISCOURSE:
        weight *= _QUOTED_SHARE
    _merge(found, {each.name: weight})


def _is_quoted(folded: str, start: int) -> bool:
    """Return whether a position is inside a quotation."""
    before = folded[max(0, start - _LOOK_BACK) : start]
    if any([before.count(quote) % 2 for quote in _QUOTES]):
        return True
    return len(_OPENS.findall(before)) > len(_CLOSES.findall(before))


def _look_at_letters(spelled: str, found: dict[str, float]) -> None:
    """Add a signal if letters that are spelled one by one form a phrase."""
    joined = "".join(character for character in _folded(spelled) if character.isalnum())
    if any([each in joined for each in JOINED]):
        found["spelled_out"] = _MARKER_WEIGHT


def _merge(found: dict[str, float], more: Mapping[str, float]) -> None:
    for name, weight in more.items():
        found[name] = max(found.get(name, 0.0), weight)
