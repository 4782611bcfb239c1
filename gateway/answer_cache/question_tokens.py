"""The tokens of a question: words with contractions and known expressions in one form, and what ends a phrase."""

import re
from typing import Final

import msgspec

from gateway.answer_cache.question_lists import Lists

# Words with their inner apostrophes; "C++", "C#"; figures; and what ends a phrase, such as a possessive.
_TOKENS: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*(?:\+\+|#)?|\d+|[,;:.!?\n()'`]")
_POSSESSIVE: Final = re.compile(r"\b([^\W\d_]+)(?:'s|(?<=s)')\s+(?=[^\W\d_])")
_IS: Final = re.compile(r"\b(what|who|where|when|why|how|which|that|there|here|it|he|she|let|one)'s\b", re.IGNORECASE)
_INVERTED: Final = re.compile(r"-(?:t-)?(?:je|tu|il|elle|on|nous|vous|ils|elles|ce|moi)\b", re.IGNORECASE)
_ELIDED: Final = re.compile(r"\b(?:l|d|qu|j|n|s|m|t|c|un|dell|all|nell|dall|sull)'(?=[^\W\d_]{2})", re.IGNORECASE)
_ENDINGS: Final = {"'re": "are", "'m": "am", "'ll": "will", "'ve": "have", "'d": "", "'s": "", "n't": "not"}


POSSESSIVE: Final = "'"  # the token behind an owner


class Token(msgspec.Struct, frozen=True, gc=False):
    folded: str
    is_name: bool = False  # with a capital where a sentence does not ask for one
    is_acronym: bool = False
    is_mark: bool = False  # punctuation
    is_owner: bool = False  # the "of" before an owner: "of Anna 's house"


def tokens_of(text: str, lists: Lists) -> list[Token]:
    """Return the tokens of a text, without an opening that asks for an answer and says nothing of what is asked."""
    text = _IS.sub(r"\1 is", text.replace("`", " "))
    text = _ELIDED.sub("", _INVERTED.sub("", _without_opening(text, lists)))
    text = _POSSESSIVE.sub(r"`of \1 ' ", text)  # "France's capital" is the capital of France
    is_shouted = text.isupper()
    found: list[Token] = []
    begins, is_owner = True, False
    for written in _TOKENS.findall(text):
        if written == "`":
            is_owner = True
            continue
        if is_owner:
            found.append(Token(written, is_owner=True))
            is_owner = False
            continue
        if written[0].isdigit():
            found.append(Token(written))
            begins = False
            continue
        if not written[0].isalpha():
            found.append(Token(written, is_mark=True))
            begins = begins or written not in ",;()'"
            continue
        plain, added = _without_ending(written)
        # A single letter, too: the "A" of "the product of A and B" is no article.
        is_acronym = (
            plain.isupper() and not is_shouted and plain not in ("OK", "I") and not (begins and len(plain) == 1)
        )
        is_name = not is_shouted and (is_acronym or (plain[:1].isupper() and not begins and plain != "I"))
        begins = False
        found.append(Token(plain.lower(), is_name, is_acronym))
        if added:
            found.append(Token(added))
    return _with_expressions(found, lists)


def _without_opening(text: str, lists: Lists) -> str:
    rest = text
    while True:
        folded = rest[:80].lower()
        opening = next((one for one in lists.openings if folded.startswith((one + " ", one + ","))), None)
        if opening is None:
            return rest
        rest = rest[len(opening) :].lstrip(" ,:")


def _without_ending(word: str) -> tuple[str, str]:
    folded = word.lower()
    if folded in ("can't", "won't", "shan't"):
        return {"can't": "can", "won't": "will", "shan't": "shall"}[folded], "not"
    for ending, added in _ENDINGS.items():
        if folded.endswith(ending) and len(folded) > len(ending):
            return word[: -len(ending)], added
    return word, ""


def _with_expressions(tokens: list[Token], lists: Lists) -> list[Token]:
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        for words, others in lists.expressions.get(tokens[place].folded, ()):
            if tuple(token.folded for token in tokens[place : place + len(words)]) == words:
                found.extend(Token(word) for word in others)
                place += len(words)
                break
        else:
            found.append(tokens[place])
            place += 1
    return found
