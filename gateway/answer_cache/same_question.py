"""Decide whether two questions that an embedding takes for the same may share an answer.

An embedding hardly sees the order of words: "a flight from Rome to Paris" is at a cosine of 0.995 of the way back, and
a sentence with another currency, place or person is as near as a paraphrase. Here the words themselves are compared.
The comparison errs on the side of asking the model.

A question is read in three steps: its tokens, with contractions and known expressions in one form; its grammar (tense,
modality, kind of question, persons); and its words in one order, so that a passive, a comparison turned round or a
clause moved to the front reads like the plain sentence.
"""

import unicodedata
from collections import Counter
from typing import Final

import msgspec

from gateway.answer_cache.question_grammar import Grammar, may_agree, read_grammar
from gateway.answer_cache.question_lists import (
    Lists,
    bases_of,
    meanings_of,
    question_lists,
    singular_of,
    stem_of,
    without_marks,
)
from gateway.answer_cache.question_rewriting import with_plain_order
from gateway.answer_cache.question_tokens import POSSESSIVE, Token, tokens_of

_MOST_IN_A_LIST: Final = 4  # words on either side of "and" that are tried as what changed places
_MOST_CHANGED: Final = 10  # words of a question that synonyms are looked up for
_LEAST_TYPO: Final = 6  # letters of a word in which two exchanged neighbours are taken for a typing error
_BETWEEN_BOTH: Final = frozenset(("between", "zwischen", "entre", "tra", "fra"))
JOINED: Final = "&"  # stem of a conjunction
MOVABLE: Final = "anywhere"  # role of what may stand anywhere in a sentence


class _Word(msgspec.Struct, frozen=True, gc=False):
    stem: str
    name: str  # as written, if with a capital where a sentence does not ask for one; else empty
    is_telling: bool  # a unit, a direction, a person: what nobody adds without meaning it
    surface: str = ""
    role: str = ""  # the preposition that it follows
    phrase: int = 0  # the number of the preposition that its phrase begins with, from 1; 0: none
    sentence: int = 0
    is_soft: bool = False  # may be added without changing the answer
    opens: bool = False  # no content word stands directly before it
    closes: bool = False  # no content word stands directly after it
    part: int = 0  # how many conjunctions stand before it
    case: str = ""  # of a German article before it


class _Question(msgspec.Struct, frozen=True):
    words: tuple[_Word, ...]
    grammar: Grammar
    surfaces: frozenset[str]  # all words as written, without capitals


def may_share_answer(first: str, second: str) -> bool:
    """Return whether the words of two questions leave them the same meaning.

    They do not if the same words come in another order; if their tenses, modal verbs or persons exclude each other; or
    if one has a word of its own that the other has in no known form.
    """
    first, second = sorted((_normalised(first), _normalised(second)))
    if first.isascii() != second.isascii():
        first, second = without_marks(first), without_marks(second)
    one, two = _read(first), _read(second)
    if not may_agree(one.grammar, two.grammar):
        return False
    if one.grammar.asks_for == two.grammar.asks_for == "agent" and _has_other_tense(one.words, two.words):
        return False
    ours, theirs, renamed = _matched(one.words, two.words)
    if any(word.name or word.is_telling or not word.is_soft for word in (*ours, *theirs)):
        return False
    if ours and theirs:
        return False
    here, there = _aligned(one.words, renamed)
    return _is_same_order(here, there, one.surfaces)


def _has_other_tense(one: tuple[_Word, ...], two: tuple[_Word, ...]) -> bool:
    """Return whether a verb without an auxiliary is in the present in one question and in the past in the other."""
    verbs = {word.stem: word.surface for word in one}
    for word in two:
        endings = word.surface[-2:], verbs.get(word.stem, "")[-2:]
        if "ed" in endings and any(ending.endswith("s") for ending in endings):
            return True
    return False


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFC", text).replace("\u2019", "'").strip()


def _read(text: str) -> _Question:
    """Return the words of a question that its answer depends on, in their order, each with its role."""
    lists = question_lists(is_ascii=text.isascii())
    tokens = tokens_of(text, lists)
    if any(token.folded in lists.both_ways for token in tokens):
        tokens = [Token("do") if token.folded in _BETWEEN_BOTH else token for token in tokens]
    grammar = read_grammar(tokens, lists)
    return _Question(
        _words_of(with_plain_order(tokens, lists), lists),
        grammar,
        frozenset(token.folded for token in tokens),
    )


def _words_of(tokens: list[Token], lists: Lists) -> tuple[_Word, ...]:
    words: list[_Word] = []
    role, phrases, number, sentence, opens, case = "", 0, 0, 0, True, ""
    joints = 0
    is_asking = True  # no word of the sentence so far says what is asked
    owned = ("", 0)  # role and phrase of what stands behind an owner
    for place, token in enumerate(tokens):
        folded = token.folded
        if token.is_mark:
            if folded != POSSESSIVE:
                is_asking = True
            sentence += folded in ".!?\n"
            if folded == POSSESSIVE:
                (role, number), opens = owned, False
            else:
                role, opens = "", True
            continue
        if not token.is_acronym:
            if folded in lists.conjunctions:
                joints += 1
                if words:
                    words.append(_Word(JOINED, "", False, JOINED, sentence=sentence, is_soft=True))
                continue
            if folded in lists.negations:
                words.append(_Word("not", "", True, folded, sentence=sentence, opens=True, closes=True))
                continue
            if folded in lists.clauses and not (folded == "while" and place + 1 < len(tokens) and not words):
                words.append(_Word(lists.clauses[folded], "", False, folded, sentence=sentence, is_soft=True))
                role, opens = "", True
                continue
            if folded in lists.roles:
                if token.is_owner:
                    owned = (role, number)
                phrases += 1
                number, role, opens = phrases, lists.roles[folded], True
                if role in ("to", "of", "for") and _is_before_verb(tokens, place, lists):
                    role = ""
                if folded not in lists.turning:
                    continue
                words.append(_Word(folded, "", True, folded, sentence=sentence))
                continue
            if folded in lists.movable or (folded in lists.movable_starts and _is_time(tokens, place + 1, lists)):
                phrases += 1
                number, role, opens = phrases, MOVABLE, True
            elif role == MOVABLE and folded not in lists.units:
                role = ""
            if folded in lists.asking and is_asking:
                role, opens = "", True
                continue
            if folded not in lists.fillers or folded in lists.auxiliaries or folded in lists.question_words:
                is_asking = False
            if folded in lists.fillers and role != MOVABLE:
                case = "n" if folded in lists.nominative else "o" if folded in lists.oblique else case
                if folded not in lists.articles:
                    role, opens = "", True
                continue
        is_telling = folded in lists.turning or folded in lists.units or len(folded) == 1
        stem = singular_of(folded) if is_telling else stem_of(folded)
        if folded in lists.phrase_ends:
            role = ""
        words.append(
            _Word(
                stem,
                folded if token.is_name else "",
                is_telling,
                folded,
                role,
                number if role else 0,
                sentence,
                folded in lists.harmless,
                opens,
                _closes(tokens, place + 1, lists),
                joints,
                case,
            )
        )
        opens, case = False, ""
    return tuple(words)


def _is_before_verb(tokens: list[Token], place: int, lists: Lists) -> bool:
    """Return whether a preposition stands before a verb: "the way to learn", "the way of learning"."""
    if tokens[place].folded == "to":
        before = tokens[place - 1].folded if place else ""
        return before in lists.before_infinitive
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    return following is not None and len(following.folded) > 5 and following.folded.endswith("ing")


def _is_time(tokens: list[Token], place: int, lists: Lists) -> bool:
    return place < len(tokens) and tokens[place].folded in lists.units


def _closes(tokens: list[Token], place: int, lists: Lists) -> bool:
    """Return whether no content word follows at this place; a preposition counts only after no other."""
    while place < len(tokens) and tokens[place].folded in lists.articles:
        place += 1
    if place == len(tokens) or tokens[place].is_mark:
        return True
    folded = tokens[place].folded
    return folded in lists.fillers or folded in lists.roles


def _matched(one: tuple[_Word, ...], two: tuple[_Word, ...]) -> tuple[list[_Word], list[_Word], tuple[_Word, ...]]:
    """Return the words of each question that the other has in no form; and the second one in the words of the first."""
    renamed = list(two)
    free: dict[str, list[int]] = {}
    for place, other in enumerate(two):
        if other.stem != JOINED:
            free.setdefault(other.stem, []).append(place)
    ours: list[_Word] = []
    for word in one:
        places = free.get(word.stem, [])
        match = next((place for place in places if _is_same(word, two[place])), None)
        if match is not None:
            places.remove(match)
        elif word.stem != JOINED:
            ours.append(word)
    theirs = sorted(place for places in free.values() for place in places)
    if len(ours) > _MOST_CHANGED or len(theirs) > _MOST_CHANGED:
        return ours, [two[place] for place in theirs], two
    for is_alike in (_is_synonym, _is_misspelt):
        left = []
        for word in ours:
            match = next((place for place in theirs if is_alike(word, two[place])), None)
            if match is None:
                left.append(word)
            else:
                theirs.remove(match)
                renamed[match] = msgspec.structs.replace(two[match], stem=word.stem)
        ours = left
    return ours, [two[place] for place in theirs], tuple(renamed)


def _is_same(word: _Word, other: _Word) -> bool:
    """Return whether two words are one, in any inflection; two names only as they are written."""
    if word.case and other.case and word.case != other.case:
        return False
    if word.stem != other.stem or (word.name and other.name and word.name != other.name):
        return False
    if word.surface == other.surface or word.stem == "not" or word.stem in question_lists(is_ascii=False).clauses:
        return True
    if word.is_telling:
        return word.is_telling == other.is_telling
    if {word.surface[-2:], other.surface[-2:]} == {"ed", "ng"}:
        return False  # who is bored is not boring
    return not bases_of(word.surface).isdisjoint(bases_of(other.surface))


def _is_synonym(word: _Word, other: _Word) -> bool:
    """Return whether two words may stand for each other. Names stand for nothing but themselves."""
    if word.name or other.name:
        return False
    if not meanings_of(word.surface).isdisjoint(meanings_of(other.surface)):
        return True
    return _is_infinitive(word.surface, other.surface) or _is_infinitive(other.surface, word.surface)


def _is_infinitive(word: str, other: str) -> bool:
    """Return whether a word is the infinitive of a Romance verb's first person: cancelar and cancelo."""
    if len(other) < 5 or other[-1] != "o":
        return False
    return word.startswith(other[:-1]) and word[len(other) - 1 :] in ("ar", "er", "ir", "are", "ere", "ire")


def _is_misspelt(word: _Word, other: _Word) -> bool:
    """Return whether two words differ by two exchanged letters within them: chnage and change."""
    a, b = word.surface, other.surface
    if word.name or other.name or word.is_telling or other.is_telling or len(a) != len(b) or len(a) < _LEAST_TYPO:
        return False
    if {a, b} & question_lists(is_ascii=False).not_typos:
        return False
    wrong = [place for place in range(len(a)) if a[place] != b[place]]
    if len(wrong) != 2 or wrong[1] != wrong[0] + 1 or wrong[0] == 0 or wrong[1] == len(a) - 1:
        return False
    return a[wrong[0]] == b[wrong[1]] and a[wrong[1]] == b[wrong[0]]


def _aligned(one: tuple[_Word, ...], two: tuple[_Word, ...]) -> tuple[tuple[_Word, ...], tuple[_Word, ...]]:
    """Return both questions, with parts of an enumeration in the second one put in the order of the first."""
    stems = [word.stem for word in two]
    ordered = question_lists(is_ascii=False).ordered
    words = list(two)
    if any(word.surface in ordered for word in one):
        return _without_joints(one), _without_joints(words)
    counts = Counter(word.stem for word in one)
    place = 0
    while place < min(len(one), len(words)):
        if one[place].stem != stems[place]:
            length = _changed_places(one, stems, place)
            # Of a word that is said twice, one place may not change without the other: "A and B minus B and A".
            if not length or any(counts[word.stem] > 1 for word in one[place : place + length] if word.stem != JOINED):
                break
            words[place : place + length] = one[place : place + length]
            place += length
        else:
            place += 1
    return _without_joints(one), _without_joints(words)


def _without_joints(words: tuple[_Word, ...] | list[_Word]) -> tuple[_Word, ...]:
    return tuple(word for word in words if word.stem != JOINED)


def _changed_places(one: tuple[_Word, ...], stems: list[str], start: int) -> int:
    """Return how many words from here on are "X and Y" in one question and "Y and X" in the other; else 0."""
    joint = next(
        (at for at in range(start + 1, start + 2 + _MOST_IN_A_LIST) if at < len(one) and one[at].stem == JOINED), 0
    )
    if not joint:
        return 0
    left = [word.stem for word in one[start:joint]]
    for end in range(joint + 2, min(joint + 2 + _MOST_IN_A_LIST, len(one) + 1)):
        right = [word.stem for word in one[joint + 1 : end]]
        if JOINED in right:
            return 0
        if stems[start : start + end - start] != [*right, JOINED, *left]:
            continue
        first, last = one[start], one[end - 1]
        if first.role == "between":
            continue
        # Verbs that come first do so in their order: "save and close the file".
        is_noun = start > 0 or bool(first.name) or (one[joint - 1].surface[-1] == last.surface[-1] == "s")
        if is_noun and first.opens and not first.role:
            return end - start
        if is_noun and last.closes and (not first.role or end == len(one) or not one[end].role):
            return end - start
    return 0


def _is_same_order(one: tuple[_Word, ...], two: tuple[_Word, ...], surfaces: frozenset[str]) -> bool:
    """Return whether the words that stand in both come in an order that leaves the meaning as it is.

    Words after "from", "to", "than" and their like must follow the same one in both. A phrase with "in", "of" and their
    like may stand anywhere in its sentence, and may be the first part of a compound ("the rules of chess", "the chess
    rules").
    """
    lists = question_lists(is_ascii=False)
    here, there = _places(one), _places(two)
    common = [name for name in here if name in there]
    sentences = max((word.sentence for word in one), default=0), max((word.sentence for word in two), default=0)
    loose_here, loose_there, moved_role = set(), set(), set()
    for name in common:
        ours, theirs = here[name][1].role, there[name][1].role
        if ours == theirs == "":
            continue
        if ours != theirs:
            if ours in lists.firm or theirs in lists.firm:
                return False
            if ours and theirs:
                if not _may_stand_for(here[name][1], there[name][1], surfaces, lists):
                    return False
                moved_role.add(name)
            elif not _may_lose_role(name, here, there, one, two, lists):
                return False
        if ours and ours not in lists.firm and theirs in ("", ours):
            loose_here.add(name)
        if theirs and theirs not in lists.firm and ours in ("", theirs):
            loose_there.add(name)
    may_move = loose_here & loose_there
    if loose_here <= loose_there or loose_there <= loose_here:
        compound = {here[name][1].role or there[name][1].role for name in loose_here ^ loose_there}
        if compound <= lists.compounding:
            may_move = loose_here | loose_there
    targets = [there[name][0] for name in common]
    if all(a < b for a, b in zip(targets, targets[1:], strict=False)):
        return True
    for place, left in enumerate(common):
        for right in common[place + 1 :]:
            if there[left][0] < there[right][0]:
                continue
            a, b, c, d = here[left][1], here[right][1], there[left][1], there[right][1]
            if (
                a.surface in lists.apposed
                and here[right][0] == here[left][0] + 1
                and there[left][0] == there[right][0] + 1
            ):
                continue
            if (
                b.surface in lists.apposed
                and here[right][0] == here[left][0] + 1
                and there[left][0] == there[right][0] + 1
            ):
                continue
            if a.role and a.role == b.role:
                return False  # which of them it is said of depends on their order
            if left in moved_role or right in moved_role:
                return False
            if sentences[0] == sentences[1] and (a.sentence != c.sentence or b.sentence != d.sentence):
                return False
            if a.role and b.role and a.part != b.part:
                return False  # "next week to Rome and in May to Paris"
            # A word with a firm role has the same in both, and moves with what marks it.
            has_firm_role = (
                a.role in lists.firm or b.role in lists.firm or left[0] in lists.roles or right[0] in lists.roles
            )
            if not (has_firm_role or left in may_move or right in may_move):
                return False
    return True


_Name = tuple[str, int]


def _may_stand_for(word: _Word, other: _Word, surfaces: frozenset[str], lists: Lists) -> bool:
    """Return whether the prepositions that a word follows in two questions may stand for each other."""
    roles = frozenset((word.role, other.role))
    if roles == {"for", "to"}:
        return not surfaces.isdisjoint(lists.to_or_for)
    return roles in lists.alike_roles


def _may_lose_role(
    name: _Name,
    here: dict[_Name, tuple[int, _Word]],
    there: dict[_Name, tuple[int, _Word]],
    one: tuple[_Word, ...],
    two: tuple[_Word, ...],
    lists: Lists,
) -> bool:
    """Return whether a word may follow a preposition in one question and none in the other.

    "leave for London" is not "leave London"; "an email to my boss" may be "my boss ... an email".
    """
    role = here[name][1].role or there[name][1].role
    if role == MOVABLE or role in ("of", "in", "de") or (role in ("on", "at") and here[name][1].is_telling):
        return True
    a, b = here[name][0], there[name][0]
    place, words = (a, one) if here[name][1].role else (b, two)
    if place and words[place - 1].phrase == words[place].phrase:
        return True  # its phrase begins before it
    before, other = one[a - 1].stem if a else "", two[b - 1].stem if b else ""
    return before != other


def _places(words: tuple[_Word, ...]) -> dict[_Name, tuple[int, _Word]]:
    """Return each word's place by its stem and by how often that stood before."""
    seen: Counter[str] = Counter()
    found = {}
    for place, word in enumerate(words):
        found[word.stem, seen[word.stem]] = (place, word)
        seen[word.stem] += 1
    return found
