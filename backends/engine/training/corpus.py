"""The corpus of the built-in model: five freely licensed Debian packages become documents and dialogues.

    mkdir sources && cd sources
    apt-get download wordnet-base sqlite3-doc postgresql-doc-15 python3.11-doc apache2-doc
    for package in *.deb; do dpkg -x "$package" root; done
    python -m backends.engine.training.corpus root corpus.jsonl

One JSON line a document: {"text": ...} for prose, {"user": ..., "assistant": ...} for a dialogue.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from backends.engine.training.dictionary import dialogues_of, senses_of
from backends.engine.training.prose import paragraphs_of, sentences_of

_MANUALS: Final = (
    "python3.11-doc",
    "postgresql-doc-15",
    "postgresql",
    "sqlite3",
    "sqlite3-doc",
    "apache2-doc",
    "apache2",
)
_SEED: Final = 20261120

_GREETINGS: Final = ("Hello", "Hi", "Hello!", "Hi there", "Good morning", "Good evening", "Hey", "Hello, how are you?")
_GREETED: Final = (
    "Hello! I am a small language model that runs on this machine. Ask me what a word means.",
    "Good day! I am Tollkeeper's built-in model. I know many words and I like to explain them.",
    "Hello! I am small and I run on a laptop, but I can tell you what a word means.",
    "Hi! I am the model that comes with Tollkeeper. What would you like to know?",
)
_ABOUT: Final = (
    ("Who are you?", "I am the built-in model of Tollkeeper. I am small, and I run on the machine in front of you."),
    ("What can you do?", "I can tell you what a word means, and I can carry on a text in plain English."),
    ("What are you?", "I am a small language model. I was trained on dictionaries and manuals that anyone may use."),
    ("Thank you", "You are welcome. Ask me about another word whenever you like."),
    ("Are you a large model?", "No. I have about five million parameters, which is very small for a language model."),
)
_CONTINUATIONS: Final = (
    "{t}",
    "Continue this text: {t}",
    "Please go on: {t}",
    "What comes next? {t}",
    "{t} Explain this.",
)


def documents(root: Path) -> Iterator[dict[str, str]]:
    """Yield all documents and dialogues from the directory of extracted packages."""
    source = random.Random(_SEED)
    for sense in senses_of(root / "usr/share/wordnet"):
        for question, answer in dialogues_of(sense, source):
            yield {"user": question, "assistant": answer}
    for manual in _MANUALS:
        directory = root / "usr/share/doc" / manual
        for page in paragraphs_of(directory) if directory.is_dir() else ():
            yield {"text": "\n".join(page)}
            yield from _continuations(page, source)
    for _ in range(4000):
        yield {"user": source.choice(_GREETINGS), "assistant": source.choice(_GREETED)}
        question, answer = source.choice(_ABOUT)
        yield {"user": question, "assistant": answer}


def _continuations(page: list[str], source: random.Random) -> Iterator[dict[str, str]]:
    """Create dialogues in which the user sends the start of a passage and the answer continues it."""
    for first, second in zip(page, page[1:], strict=False):
        if source.random() < 0.5:
            continue
        asked = " ".join(sentences_of(first)[:2])
        answer = " ".join(sentences_of(first)[2:] + sentences_of(second))
        yield {"user": source.choice(_CONTINUATIONS).format(t=asked), "assistant": answer}


def main(root: Path, target: Path) -> None:
    """Write the corpus, shuffled with a fixed seed."""
    found = list(documents(root))
    random.Random(_SEED).shuffle(found)
    with target.open("w") as file:
        for document in found:
            file.write(json.dumps(document) + "\n")
    print(f"{len(found)} documents, {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
