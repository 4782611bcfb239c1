"""The grammar of a question: what its auxiliaries and question words say, apart from its other words."""

from typing import Final

import msgspec

from gateway.answer_cache.question_lists import Lists
from gateway.answer_cache.question_tokens import POSSESSIVE, Token

_AGENT_OR_OBJECT: Final = ("who", "what", "which")
_HOW: Final = frozenset(("how", "wie", "comment", "cómo", "come", "como"))
_OBJECTS: Final = frozenset(("me", "mir", "mich", "moi", "us", "uns"))
_HAVE: Final = frozenset(("has", "have", "had"))
_AMOUNTS: Final = frozenset(("combien", "cuánto", "cuanto", "quanto", "wieviel", "wieviele"))


class Grammar(msgspec.Struct, frozen=True):
    tenses: frozenset[str]
    kind: (
        str  # of the first question: "how", "amount", "open" (another question word), "closed" (yes or no); else empty
    )
    fronted: str  # of a closed question: "permission", "obligation" or "other"
    modals: frozenset[str]  # "permission", "obligation": those outside of "how" questions
    asks_for: str  # "agent" in "Who sued Apple?", "object" in "Who did Apple sue?"; else empty
    persons: str  # of first and second person, in their order: "12" in "I owe you"
    subjects: frozenset[str]  # "1" for I, "2" for you
    owners: frozenset[str]  # "1" for me and my, "2" for your
    is_object: bool  # the one who asks is whom something is done to: "me"


def may_agree(one: Grammar, two: Grammar) -> bool:
    """Return whether the grammar of two questions leaves them the same meaning."""
    if one.tenses and two.tenses and not _overlap(one, two):
        return False
    if {one.kind, two.kind} in ({"closed", "how"}, {"closed", "open"}, {"closed", "amount"}, {"how", "amount"}):
        return False
    if one.kind == two.kind == "closed" and one.fronted != two.fronted:
        return False
    if one.modals and two.modals and not one.modals & two.modals:
        return False
    if one.asks_for and two.asks_for and one.asks_for != two.asks_for:
        return False
    if one.owners and two.owners and one.owners != two.owners and one.subjects == two.subjects:
        return False
    if one.is_object != two.is_object and ("1" in one.subjects) != ("1" in two.subjects):
        return False
    return not (len(set(one.persons)) == len(set(two.persons)) == 2 and one.persons != two.persons)


def _overlap(one: Grammar, two: Grammar) -> bool:
    if one.tenses & two.tenses:
        return True
    both = one.tenses | two.tenses
    # "Does hot air rise?" and "Will hot air rise?" ask the same; "what does it cost" and "what would it cost" do too.
    is_open = one.kind == two.kind and one.kind not in ("", "closed")
    return "past" not in both and (not is_open or "conditional" in both)


def read_grammar(tokens: list[Token], lists: Lists) -> Grammar:
    """Return the grammar of a question's tokens."""
    tenses, modals = set(), set()
    subjects: set[str] = set()
    owners: set[str] = set()
    is_object = False
    kind = fronted = asks_for = persons = ""
    begins, is_how = True, False
    for place, token in enumerate(tokens):
        word = token.folded
        if token.is_mark:
            if word != POSSESSIVE:
                begins, is_how = True, False
            continue
        modal = "permission" if word in lists.permission else "obligation" if word in lists.obligation else ""
        tense = next(
            (
                name
                for name, words in (
                    ("present", lists.present),
                    ("past", lists.past),
                    ("future", lists.future),
                    ("conditional", lists.conditional),
                )
                if word in words
            ),
            "",
        )
        if word in _HAVE and not _is_owned(tokens, place + 1, lists):
            tense = ""  # "I have lost" may be "I lost"
        if tense and not token.is_name:
            tenses.add(tense)
        if word in _HOW and not token.is_name:
            is_how = True
        elif modal and not is_how:
            modals.add(modal)
        if begins and not kind:
            kind = _kind(tokens, place, lists)
            if kind == "closed":
                fronted = modal or "other"
            asks_for = _asked_for(tokens, place, lists) if word in _AGENT_OR_OBJECT else ""
        begins = False
        person = "1" if word in lists.first_person else "2" if word in lists.second_person else ""
        if person:
            persons += "" if persons.endswith(person) else person
            (subjects if word in ("i", "you", "we") else owners).add(person)
            is_object = is_object or (word in _OBJECTS and place > 1)
    return Grammar(
        frozenset(tenses),
        kind,
        fronted,
        frozenset(modals),
        asks_for,
        persons,
        frozenset(subjects),
        frozenset(owners),
        is_object,
    )


def _is_owned(tokens: list[Token], place: int, lists: Lists) -> bool:
    return place < len(tokens) and tokens[place].folded in lists.articles


def _kind(tokens: list[Token], place: int, lists: Lists) -> str:
    word = tokens[place].folded
    if word in lists.question_words and word in lists.past:
        return ""  # "was" is "what" in German
    if word in _HOW:
        following = tokens[place + 1].folded if place + 1 < len(tokens) and not tokens[place + 1].is_mark else ""
        # "How heavy is it" asks for an amount, as "how much" does.
        return (
            "how" if following == "to" or not following or following in lists.auxiliaries or word != "how" else "amount"
        )
    if word in _AMOUNTS:
        return "amount"
    if word in lists.question_words:
        return "open"
    is_auxiliary = word in lists.auxiliaries or word in lists.present or word in lists.permission
    return "closed" if is_auxiliary or word in lists.obligation or word in lists.past else ""


def _asked_for(tokens: list[Token], place: int, lists: Lists) -> str:
    """Return whether "who", "what" or "which" at this place stands for who does it, or what it is done to."""
    for token in tokens[place + 1 :]:
        if token.is_mark:
            break
        if token.folded in ("do", "does", "did"):
            return "object"
        if token.folded in lists.auxiliaries:
            return ""
    return "agent"
