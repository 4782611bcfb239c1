"""Precision and recall of the guardrails' detectors on a corpus that was written for their tests.

A line says which kinds of thing a text holds. `injection_unseen` was written after the phrases and has not been tuned
on; of the others the tests hold the figures.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from algorithms.detectors.canary import canary_marker
from contracts.guardrails.detector import Detector
from contracts.guardrails.finding import Finding
from contracts.guardrails.plain_text import plain_text
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.detectors.table import build_detector

CORPUS: Final = Path(__file__).resolve().parent.parent / "tests" / "gateway" / "guardrails" / "corpus"
FILES: Final[Mapping[str, str]] = {
    "pii": "pii",
    "secrets": "secrets",
    "injection": "injection",
    "injection_unseen": "injection",
    "injection_definitions": "injection",
    "canary": "canary",
}
_AT_NS: Final = 1_764_000_000_000_000_000
_PEPPER: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Line:
    """A text and the kinds that it holds; a detector of whole texts has one kind, its own name."""

    text: str
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Score:
    """How often one kind was found. `missed` and `false` are the texts, for the one that looks into it."""

    found: int
    false: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def precision(self) -> float:
        """Return the share of what was found that is one; 1 if nothing was found."""
        told = self.found + len(self.false)
        return self.found / told if told else 1.0

    @property
    def recall(self) -> float:
        """Return the share of what is one that was found."""
        there = self.found + len(self.missed)
        return self.found / there if there else 1.0


def read_corpus(name: str) -> list[Line]:
    """Read a file of the corpus. `{canary}` stands for a marker of the installation whose secret is all zeros."""
    marker = canary_marker(_canary_secret(), "acme", "system-prompt", _AT_NS)
    lines = []
    for row in (CORPUS / f"{name}.jsonl").read_text().splitlines():
        stated = json.loads(row)
        lines.append(Line(_with_marker(stated["text"], marker), frozenset(stated["expect"])))
    return lines


def corpus_detector(name: str) -> Detector:
    """Build the detector of a file, as policies do by default."""
    detector = build_detector(FILES[name], {}, DetectorDependencies(pepper=_PEPPER))
    assert isinstance(detector, Detector)
    return detector


def scores_of(name: str) -> dict[str, Score]:
    """Judge a file of the corpus, by kind."""
    detector, whole = corpus_detector(name), FILES[name]
    found, false, missed = Counter[str](), dict[str, list[str]](), dict[str, list[str]]()
    for line in read_corpus(name):
        told = {whole if finding.is_of_whole else finding.kind for finding in _findings(detector, line.text)}
        found.update(told & line.kinds)
        for kind in told - line.kinds:
            false.setdefault(kind, []).append(line.text)
        for kind in line.kinds - told:
            missed.setdefault(kind, []).append(line.text)
    return {
        kind: Score(found[kind], tuple(false.get(kind, ())), tuple(missed.get(kind, ())))
        for kind in sorted({*found, *false, *missed})
    }


def together(scores: Mapping[str, Score]) -> Score:
    """Return the score of all kinds of a file together."""
    false = tuple(text for score in scores.values() for text in score.false)
    missed = tuple(text for score in scores.values() for text in score.missed)
    return Score(sum(score.found for score in scores.values()), false, missed)


def _findings(detector: Detector, text: str) -> Sequence[Finding]:
    return detector.find(plain_text(text), "user")


def _canary_secret() -> bytes:
    """Return the secret that the canary's detector makes of a pepper of zeros."""
    return hmac.digest(_PEPPER, b"guardrails canary", hashlib.sha256)


def _with_marker(text: str, marker: str) -> str:
    shapes = {
        "{canary}": marker,
        "{CANARY}": marker.upper(),
        "{spelled}": " ".join(marker.replace("-", "")),
        "{hyphened}": "-".join(marker.replace("-", "")),
        "{hex}": marker.encode().hex(),
    }
    for name, value in shapes.items():
        text = text.replace(name, value)
    return text
