"""Classifies what a prompt is about by a route's examples, and abstains if they do not decide."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from backends.embedder.base import DIMENSIONS
from contracts.serving.semantic import SemanticSpec
from gateway.routing.semantic.intent_space import IntentSpace, label_array
from gateway.routing.semantic.reports import IntentReport
from gateway.routing.semantic.tally import Tally
from gateway.routing.semantic.thresholds import best_threshold
from gateway.routing.semantic.vectors import FloatArray

_FOLDS: Final = 5
_SURELY_OWN: Final = 0.25  # quantile of the scores of an intent's own examples
# At least this share of the examples: if an intent covers several topics, its examples are no nearer to each other than
# unrelated texts are, and the best threshold would leave most of its prompts to the default.
_LEAST_TAKEN: Final = 0.75
_HERE: Final = Path(__file__).parent


@cache
def everyday_prompts() -> tuple[str, ...]:
    """Return prompts of all kinds, as a contrast to a route's intents."""
    return read_prompts("everyday")


def read_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts of a list in the folder `prompts`, one per line."""
    return tuple((_HERE / "prompts" / f"{name}.txt").read_text(encoding="utf-8").splitlines())


class _Examples(msgspec.Struct, frozen=True):
    """Training data: vectors [n, dimensions], and the intent of each of `vectors`."""

    vectors: FloatArray
    labels: NDArray[np.int64]
    others: FloatArray
    everyday: FloatArray

    def part(self, fold: int) -> tuple["_Examples", "_Examples"]:
        """Return all folds but one, and that fold. Each intent is spread over the folds."""
        places = np.concatenate([np.arange(count) for count in np.bincount(self.labels)])  # they are sorted by intent
        held, others, everyday = (
            which % _FOLDS == fold for which in (places, np.arange(len(self.others)), np.arange(len(self.everyday)))
        )
        rest = _Examples(self.vectors[~held], self.labels[~held], self.others[~others], self.everyday[~everyday])
        return rest, _Examples(self.vectors[held], self.labels[held], self.others[others], self.everyday[everyday])


class IntentClassifier:
    """Classifies vectors as one of the intents, or as none."""

    def __init__(self, space: IntentSpace, thresholds: FloatArray) -> None:
        self._space = space
        self._thresholds = thresholds

    def read(self, texts: FloatArray) -> list[tuple[int | None, float]]:
        """Return for each of [texts, dimensions] its intent (`None`: none), and the best intent's score."""
        scores = self._space.scores(texts)
        best = scores.argmax(1)
        highest = scores[np.arange(len(best)), best]
        is_taken = highest >= self._thresholds[best]
        return [
            (int(intent) if taken else None, float(score))
            for intent, taken, score in zip(best, is_taken, highest, strict=True)
        ]


def fit_intents(spec: SemanticSpec, vectors: Mapping[str, FloatArray]) -> tuple[IntentClassifier, IntentReport]:
    """Train a classifier on a route's examples, with their vectors by text, and return it with its accuracy."""
    labels = label_array([len(intent.examples) for intent in spec.intents])
    examples = _Examples(
        np.stack([vectors[text] for intent in spec.intents for text in intent.examples]),
        labels,
        _stack(spec.others, vectors),
        _stack(everyday_prompts(), vectors),
    )
    stated = np.array([np.nan if intent.threshold is None else intent.threshold for intent in spec.intents])
    classifier, calibrated = _fit(examples, stated)
    thresholds = np.where(np.isnan(stated), calibrated, stated)
    report = IntentReport(
        thresholds={name: float(line) for name, line in zip(spec.names, thresholds, strict=True)},
        calibrated=calibrated if np.isnan(stated).any() else None,
        **_held_out(examples, stated, spec.names),
    )
    return classifier, report


def _fit(examples: _Examples, stated: FloatArray) -> tuple[IntentClassifier, float]:
    space = IntentSpace(examples.vectors, examples.labels, len(stated))
    calibrated = _calibrate(space, examples)
    return IntentClassifier(space, np.where(np.isnan(stated), calibrated, stated)), calibrated


def _calibrate(space: IntentSpace, examples: _Examples) -> float:
    """Find one threshold for all intents: with small sets of examples, one threshold per intent does worse."""
    scores = space.held_out_scores()
    best = scores.argmax(1)
    counts = np.bincount(examples.labels)
    has_others = counts[examples.labels] > 1  # an intent's only example cannot be found by another
    own = scores[np.arange(len(best)), examples.labels]
    right = own[has_others]
    misread = scores.max(1)[has_others & (best != examples.labels)]
    foreign = space.scores(examples.everyday)
    nearest = foreign.argmax(1)
    everyday = foreign.max(1)
    # Some of these belong to an intent after all: they are nearer to it than some of its own examples.
    is_foreign = everyday < _lower_bounds(own, examples.labels, has_others)[nearest]
    others = space.scores(examples.others).max(1) if len(examples.others) else np.empty(0)
    line = best_threshold(right, np.concatenate([misread, others, everyday[is_foreign]]))
    return min(line, float(np.quantile(right, 1 - _LEAST_TAKEN))) if len(right) else line


def _lower_bounds(own: FloatArray, labels: NDArray[np.int64], counts: NDArray[np.bool_]) -> FloatArray:
    """Return for each intent the score that most of its own examples reach, among those that count."""
    every = [own[(labels == intent) & counts] for intent in range(int(labels.max()) + 1)]
    return np.array([np.quantile(some, _SURELY_OWN) if len(some) else 1.0 for some in every])


def _held_out(examples: _Examples, stated: FloatArray, names: Sequence[str]) -> dict[str, Any]:
    """Classify every example by a classifier and a threshold that were fitted without it."""
    pairs: list[tuple[str | None, str | None]] = []
    foreign: dict[str, list[bool]] = {"others": [], "everyday": []}
    for fold in range(_FOLDS):
        rest, held = examples.part(fold)
        classifier, _ = _fit(rest, stated)
        read = classifier.read(held.vectors)
        pairs += [
            (names[label], None if intent is None else names[intent])
            for label, (intent, _) in zip(held.labels, read, strict=True)
        ]
        for name, texts in (("others", held.others), ("everyday", held.everyday)):
            foreign[name] += [intent is None for intent, _ in classifier.read(texts)]
    shares = {name: sum(left) / len(left) if left else None for name, left in foreign.items()}
    return {"held_out": Tally.of(pairs), **shares}


def _stack(texts: Sequence[str], vectors: Mapping[str, FloatArray]) -> FloatArray:
    return np.stack([vectors[text] for text in texts]) if texts else np.empty((0, DIMENSIONS))
