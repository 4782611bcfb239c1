"""Separates prompts that need a large model from those that a small one can answer, by topic and form."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contracts.serving.semantic import ComplexitySpec
from gateway.routing.semantic.intents import read_prompts
from gateway.routing.semantic.reports import ComplexityReport
from gateway.routing.semantic.tally import Tally
from gateway.routing.semantic.thresholds import best_threshold
from gateway.routing.semantic.vectors import FloatArray

# Chosen by cross-validation over the prompts that come with Tollkeeper; a third and three times this value differ by
# one point.
_PENALTY: Final = 1.0
_STEPS: Final = 50  # Newton's method needs about ten
_LOOK_WEIGHT: Final = 0.3  # weight of a prompt's form, beside a vector of length 1
_MOST_CHARACTERS: Final = 8000
_REASONING = re.compile(
    r"\b(prove|derive|explain|analy[sz]e|compare|evaluate|design|implement|optimi[sz]e|justify|discuss|plan|debug"
    r"|refactor|critique|assess|argue|trade-?offs?|step by step|reason|why)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"```|[{};]\s*$|\bdef |\bclass |=>|->", re.MULTILINE)


@cache
def given_prompts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the simple and the complex prompts that come with Tollkeeper."""
    return read_prompts("simple"), read_prompts("complex")


def complexity_examples(spec: ComplexitySpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the simple and the complex prompts to learn from: the route's own, or the supplied ones."""
    return (spec.simple, spec.complex) if spec.simple else given_prompts()


def look_of(text: str) -> list[float]:
    """Return a prompt's form, each part about 0 to 1: its length, its code, words that ask for reasoning."""
    text = text[:_MOST_CHARACTERS]
    words = len(text.split())
    return [
        min(math.log1p(words) / 7, 1.0),
        min(text.count("\n") / 20, 1.0),
        min(len(_CODE.findall(text)) / 3, 1.0),
        min(len(_REASONING.findall(text)) / 3, 1.0),
        min((text.count(",") + text.count(";")) / 6, 1.0),
    ]


class ComplexityClassifier:
    """Computes the probability that a prompt is complex."""

    def __init__(self, weights: FloatArray, slope: float, offset: float, threshold: float) -> None:
        """Accept the weights; `slope` and `offset` turn their score into a probability."""
        self._weights = weights
        self._slope, self._offset = slope, offset
        self.threshold = threshold

    def probability(self, vector: FloatArray, text: str) -> float:
        """Return the probability for a text and its vector [dimensions]."""
        score = float(_features(vector[None], [text])[0] @ self._weights)
        return _sigmoid(self._slope * score + self._offset)


def fit_complexity(
    spec: ComplexitySpec, vectors: Mapping[str, FloatArray]
) -> tuple[ComplexityClassifier, ComplexityReport]:
    """Train a classifier on examples, with their vectors by text, and return it with its accuracy.

    A ridge regression onto -1 and 1, with equal weight for both classes, and a logistic curve over its scores of
    examples that it has not seen (Platt 1999).
    """
    simple, complex_ = complexity_examples(spec)
    texts = (*simple, *complex_)
    features = _features(np.stack([vectors[text] for text in texts]), texts)
    is_complex = np.arange(len(texts)) >= len(simple)
    weights, held_out = _ridge(features, np.where(is_complex, 0.5 / len(complex_), -0.5 / len(simple)) * len(texts))
    slope, offset = _logistic(held_out, is_complex)
    found = np.array([_sigmoid(slope * score + offset) for score in held_out])
    threshold = spec.threshold
    if threshold is None:
        threshold = best_threshold(found[is_complex], found[~is_complex])
    names = ("simple", "complex")
    pairs = [
        (names[int(was)], names[int(probability >= threshold)])
        for was, probability in zip(is_complex, found, strict=True)
    ]
    report = ComplexityReport(threshold, spec.threshold is None, len(texts), Tally.of(pairs))
    return ComplexityClassifier(weights, slope, offset, threshold), report


def _features(vectors: FloatArray, texts: Sequence[str]) -> FloatArray:
    looks = np.array([look_of(text) for text in texts]) * _LOOK_WEIGHT
    return np.hstack([vectors, looks, np.ones((len(texts), 1))])


def _ridge(features: FloatArray, aims: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weights, and each row's score by weights fitted without that row (Allen 1974, in closed form)."""
    inverse = np.linalg.inv(features @ features.T + _PENALTY * np.eye(len(features)))
    shares = inverse @ aims
    return features.T @ shares, aims - shares / np.diag(inverse)


def _logistic(scores: FloatArray, labels: NDArray[np.bool_]) -> tuple[float, float]:
    """Fit slope and offset by Newton's method. Targets are slightly off 0 and 1 (Platt scaling) because examples are
    few.
    """
    right, wrong = int(labels.sum()), int((~labels).sum())
    aims = np.where(labels, (right + 1) / (right + 2), 1 / (wrong + 2))
    slope, offset = 1.0, 0.0
    for _ in range(_STEPS):
        found = np.array([_sigmoid(slope * score + offset) for score in scores])
        curve = np.maximum(found * (1 - found), 1e-6)
        a, b, c = float((curve * scores**2).sum()) + 1e-6, float((curve * scores).sum()), float(curve.sum()) + 1e-6
        down, across = float(((found - aims) * scores).sum()), float((found - aims).sum())
        area = a * c - b * b
        step = ((c * down - b * across) / area, (a * across - b * down) / area)
        slope, offset = slope - step[0], offset - step[1]
        if max(abs(step[0]), abs(step[1])) < 1e-9:
            break
    return slope, offset


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-min(max(value, -30.0), 30.0)))
