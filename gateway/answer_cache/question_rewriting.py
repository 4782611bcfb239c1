"""One order of words for sentences that say the same: actives for passives, clauses behind, comparisons one way."""

from typing import Final

from gateway.answer_cache.question_lists import Lists, stem_of
from gateway.answer_cache.question_tokens import Token

_SENTENCE_ENDS: Final = ".!?\n"
_BE: Final = frozenset(("is", "are", "was", "were", "am", "be", "been", "being"))
_BOUNDARY: Final = Token("do")  # a word without meaning, at which no phrase goes on
_AND: Final = Token("and")
_THAN: Final = ("than", "als")
_TIED: Final = frozenset(("to", "of", "with", "from", "as", "by", "mit", "avec", "con"))
# Words behind which "when" asks for a time.
_KNOWING: Final = frozenset(
    "know knows knew ask asks asked tell tells told remember say says said see find check wonder decide explain is "
    "since me you him her us them and or".split()
)
_LONGEST_OBJECT: Final = 4
_FRONTED: Final = frozenset(("after", "before", "nach", "nachdem", "bevor", "après", "avant"))


def with_plain_order(tokens: list[Token], lists: Lists) -> list[Token]:
    """Return the tokens of a text, each sentence with its words in the order of the plainest one of that meaning."""
    found: list[Token] = []
    sentence: list[Token] = []
    for token in tokens:
        if token.is_mark and token.folded in _SENTENCE_ENDS:
            found += _rewritten(sentence, lists)
            found.append(token)
            sentence = []
        else:
            sentence.append(token)
    return found + _rewritten(sentence, lists)


def _rewritten(sentence: list[Token], lists: Lists) -> list[Token]:
    if not sentence:
        return sentence
    sentence = [Token("who") if token.folded == "whom" else token for token in sentence]
    for rewrite in (
        _clause_behind,
        _particle_at_verb,
        _comparison_one_way,
        _relation_first,
        _superlative_before,
        _active,
    ):
        sentence = rewrite(sentence, lists)
    return sentence


def _clause_behind(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "B if A" for "If A, B"; "when" that opens a clause and asks for no time is an "if"."""
    comma = next((place for place, token in enumerate(sentence) if token.folded == ","), 0)
    first, second = sentence[0].folded, sentence[1].folded if len(sentence) > 1 else ""
    is_clause = first in lists.clauses or first in _FRONTED or (first == "when" and second not in lists.auxiliaries)
    if comma and is_clause and comma + 1 < len(sentence):
        opening = Token("if") if first == "when" else sentence[0]
        return [*sentence[comma + 1 :], opening, *sentence[1:comma]]
    last = len(sentence) - 1
    return [
        Token("if")
        if token.folded == "when"
        and 0 < place < last
        and sentence[place + 1].folded not in lists.auxiliaries
        and sentence[place - 1].folded not in _KNOWING
        else token
        for place, token in enumerate(sentence)
    ]


def _particle_at_verb(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "turn off the light" for "turn the light off"."""
    place = 0
    while place < len(sentence):
        if stem_of(sentence[place].folded) in lists.particle_verbs or sentence[place].folded in lists.particle_verbs:
            end = _end_of_phrase(sentence, place + 1, lists)
            is_short = place + 1 < end <= place + 1 + _LONGEST_OBJECT
            if is_short and end < len(sentence) and sentence[end].folded in lists.particles:
                after = end + 1
                if after == len(sentence) or sentence[after].is_mark or sentence[after].folded in lists.roles:
                    moved = sentence[end]
                    sentence = [*sentence[: place + 1], moved, *sentence[place + 1 : end], *sentence[after:]]
                    place = end
        place += 1
    return sentence


def _comparison_one_way(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "B is longer than A" for "A is shorter than B"."""
    for place in range(1, len(sentence) - 2):
        known = lists.comparatives.get(sentence[place].folded)
        if known is None or sentence[place + 1].folded not in _THAN:
            continue
        greater, is_lesser = known
        begin, end = _begin_of_phrase(sentence, place, lists), _end_of_phrase(sentence, place + 2, lists)
        if begin == place or end == place + 2 or _is_tied(sentence, begin - 1, end, lists):
            continue
        one, other = sentence[begin:place], sentence[place + 2 : end]
        if is_lesser:
            one, other = other, one
        return [*sentence[:begin], *one, Token(greater), sentence[place + 1], *other, *sentence[end:]]
    return sentence


def _relation_first(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "similar: A and B" for "A similar to B" and "A and B similar", of what holds both ways."""
    for place, token in enumerate(sentence):
        if token.folded not in lists.symmetric:
            continue
        if token.folded in lists.symmetric_verbs:
            end = _end_of_phrase(sentence, place + 1, lists)
            if place + 1 < end < len(sentence) - 1 and sentence[end].folded in _TIED:
                return [*sentence[:end], _AND, *sentence[end + 1 :]]
            continue
        begin = _begin_of_phrase(sentence, place, lists)
        if begin == place:
            continue
        if place + 1 < len(sentence) and sentence[place + 1].folded in _TIED:
            end = _end_of_phrase(sentence, place + 2, lists)
            if end > place + 2 and not _is_tied(sentence, begin - 1, end, lists):
                both = [*sentence[begin:place], _AND, *sentence[place + 2 : end]]
                return [*sentence[:begin], token, _BOUNDARY, *both, *sentence[end:]]
        elif begin > 0 and sentence[begin - 1].folded in lists.conjunctions:
            start = _begin_of_phrase(sentence, begin - 1, lists)
            return [*sentence[:start], token, _BOUNDARY, *sentence[start:place], *sentence[place + 1 :]]
    return sentence


def _superlative_before(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "what is the fastest animal" for "which animal is the fastest"."""
    if sentence[0].folded not in ("which", "what") or not sentence[-1].folded.endswith("est") or len(sentence) > 8:
        return sentence
    noun = _end_of_phrase(sentence, 1, lists)
    if noun == 1 or noun >= len(sentence) or sentence[noun].folded not in _BE:
        return sentence
    if _end_of_phrase(sentence, noun + 1, lists) != len(sentence) or len(sentence) - noun > 3:
        return sentence
    return [sentence[0], sentence[noun], sentence[-1], *sentence[1:noun]]


def _active(sentence: list[Token], lists: Lists) -> list[Token]:
    """Return "did Brutus kill Caesar" for "was Caesar killed by Brutus"; the verb goes before its object."""
    auxiliary = next((place for place, token in enumerate(sentence) if token.folded in lists.auxiliaries), None)
    if auxiliary is None:
        return sentence
    before = sentence[:auxiliary]
    if auxiliary == 0 and len(sentence) > 3 and sentence[0].folded == "is" and sentence[1].folded.endswith("ing"):
        last = _end_of_phrase(sentence, 1, lists)
        if last > 3:  # "is drinking coffee bad" is "is it bad to drink coffee"
            return [sentence[0], sentence[last - 1], *sentence[1 : last - 1], *sentence[last:]]
    end = _end_of_phrase(sentence, auxiliary + 1, lists)
    if sentence[auxiliary].folded in _BE and end + 1 < len(sentence) and sentence[end].folded == "to":
        verb = end + 1  # "are raw eggs safe to eat" is "is it safe to eat raw eggs"
        is_last = verb + 1 == len(sentence) or not _is_part(sentence[verb + 1], lists)
        if end - auxiliary > 2 and is_last and _is_content(sentence[verb], lists):
            patient = sentence[auxiliary + 1 : end - 1]
            return [
                *before,
                _BOUNDARY,
                sentence[end - 1],
                sentence[end],
                sentence[verb],
                *patient,
                *sentence[verb + 1 :],
            ]
    if sentence[auxiliary].folded in _BE:
        verb = end - 1  # "was Caesar killed"
        patient = sentence[auxiliary + 1 : verb]
    else:
        if end >= len(sentence) - 1 or sentence[end].folded != "be":
            return sentence
        verb = end + 1  # "can rice be frozen"
        patient = sentence[auxiliary + 1 : end]
    if verb <= auxiliary or not _is_participle(sentence[verb], lists):
        return sentence
    is_by = verb + 1 < len(sentence) and sentence[verb + 1].folded == "by"
    if not any(_is_content(token, lists) for token in patient):
        if not is_by or not before or before[0].folded in lists.question_words or len(before) == 0:
            return sentence
        begin = _begin_of_phrase(sentence, auxiliary, lists)  # "penicillin was discovered by Fleming"
        before, patient = sentence[:begin], sentence[begin:auxiliary]
        if not patient:
            return sentence
    rest = verb + 1
    agent: list[Token] = []
    if is_by:
        rest = _end_of_agent(sentence, verb + 2, lists)
        agent = sentence[verb + 2 : rest]
        if not agent and rest < len(sentence) and not sentence[rest].is_mark:
            return sentence  # "by me"
        if not agent:  # "who was it painted by"
            agent, before = before, []
    elif before and before[0].folded == "by":  # "by whom was it painted"
        agent, before = before[1:], []
    return [*before, _BOUNDARY, *agent, sentence[verb], *patient, *sentence[rest:]]


def _is_tied(sentence: list[Token], before: int, after: int, lists: Lists) -> bool:
    """Return whether a preposition ties more words to what stands between two places."""
    is_tied_before = before >= 0 and (sentence[before].folded in lists.roles or sentence[before].is_mark)
    return is_tied_before or (after < len(sentence) and sentence[after].folded in ("of", "'"))


def _end_of_agent(sentence: list[Token], place: int, lists: Lists) -> int:
    if place < len(sentence) and sentence[place].folded == "who":
        return place + 1
    return _end_of_phrase(sentence, place, lists)


def _end_of_phrase(sentence: list[Token], place: int, lists: Lists) -> int:
    """Return where the nouns and articles that begin here end."""
    while place < len(sentence) and _is_part(sentence[place], lists):
        place += 1
    return place


def _begin_of_phrase(sentence: list[Token], place: int, lists: Lists) -> int:
    """Return where the nouns and articles that end before this place begin."""
    while place > 0 and _is_part(sentence[place - 1], lists):
        place -= 1
    return place


def _is_part(token: Token, lists: Lists) -> bool:
    return _is_content(token, lists) or token.folded in lists.articles


def _is_content(token: Token, lists: Lists) -> bool:
    word = token.folded
    if token.is_mark or word in lists.question_words or word in lists.auxiliaries:
        return False
    return not (
        word in lists.fillers
        or word in lists.conjunctions
        or word in lists.negations
        or word in lists.clauses
        or word in lists.roles
    )


def _is_participle(token: Token, lists: Lists) -> bool:
    return (token.folded.endswith("ed") and len(token.folded) > 4) or token.folded in lists.participles
