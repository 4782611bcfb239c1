"""Creates questions and answers from WordNet: the meaning of a word, in sentences."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PARTS: Final = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
_EXAMPLE: Final = re.compile(r'"([^"]{8,120})"')
_VOWELS: Final = "aeiou"


@dataclass(frozen=True, slots=True)
class Sense:
    """One meaning: the word, its part of speech, its gloss without examples, the examples, its hypernym."""

    word: str
    part: str
    gloss: str
    examples: tuple[str, ...]
    kind: str


def senses_of(wordnet: Path) -> Iterator[Sense]:
    """Yield the senses in WordNet's data files, without proper names and glosses that are not plain words."""
    for name, part in _PARTS.items():
        lines = [line for line in (wordnet / f"data.{name}").read_text().splitlines() if not line.startswith(" ")]
        head_of = {line[:8]: line.split(" ")[4].replace("_", " ") for line in lines}
        for line in lines:
            facts, _, text = line.partition(" | ")
            fields = facts.split(" ")
            word = fields[4].replace("_", " ").split("(")[0]
            gloss = text.split(";")[0].split('"')[0].strip().rstrip(":;,. ")
            gloss = re.sub(r"^\([^)]*\)\s*", "", gloss)
            if not word.isascii() or word != word.lower() or not gloss.isascii() or not 3 <= len(gloss.split()) <= 30:
                continue
            kind = head_of.get(fields[fields.index("@") + 1], "") if "@" in fields else ""
            yield Sense(word, part, gloss, tuple(_EXAMPLE.findall(text)), kind)


def dialogues_of(sense: Sense, random_source: random.Random) -> Iterator[tuple[str, str]]:
    """Yield questions about a sense in two of several phrasings, each with the answer as a short paragraph."""
    questions = {
        "n": ("What is {a}?", "What does {w} mean?", "Tell me about {a}.", "Define {w}.", "Explain {w} to me."),
        "v": ("What does it mean to {w}?", "What does {w} mean?", "Define {w}.", "When do you {w}?"),
        "a": ("What does {w} mean?", "Describe something that is {w}.", "Define {w}.", "When is something {w}?"),
        "r": ("What does {w} mean?", "How do you use the word {w}?", "Define {w}."),
    }[sense.part]
    answer = _answer(sense, random_source)
    for question in random_source.sample(questions, 2):
        asked = question.format(w=sense.word, a=with_article(sense.word))
        if random_source.random() < 0.3:
            asked = asked[0].lower() + asked[1:].rstrip("?.")
        yield asked, answer
    if sense.examples and random_source.random() < 0.3:
        yield f"Use the word {sense.word} in a sentence.", _sentence(random_source.choice(sense.examples))


def with_article(word: str) -> str:
    """Return a noun with its indefinite article."""
    return f"{'an' if word[0] in _VOWELS else 'a'} {word}"


def _answer(sense: Sense, random_source: random.Random) -> str:
    word, gloss = sense.word, sense.gloss
    if sense.part == "n":
        said = [f"{with_article(word).capitalize()} is {gloss}."]
        if sense.kind and sense.kind != word:
            said.append(f"It is a kind of {sense.kind}.")
    elif sense.part == "v":
        said = [f"To {word} means to {gloss}."]
    elif sense.part == "a":
        said = (
            [f"Something that is {word} is {gloss}."]
            if gloss.split()[0] not in ("of", "not")
            else [f"The word {word} means {gloss}."]
        )
    else:
        said = [f"The word {word} means {gloss}."]
    if sense.examples:
        opening = random_source.choice(("For example:", "You could say:", "Here is an example:"))
        said.append(f"{opening} {_sentence(random_source.choice(sense.examples))}")
    return " ".join(said)


def _sentence(text: str) -> str:
    text = text.strip()
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
