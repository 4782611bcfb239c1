"""Chooses the score threshold that separates members of a class from others."""

import numpy as np

from gateway.routing.semantic.vectors import FloatArray


def best_threshold(right: FloatArray, wrong: FloatArray) -> float:
    """Return the threshold that separates best: the largest share of `right` at or above it minus that of `wrong`.

    Youden 1950 (Index for rating diagnostic tests). Both shares have equal weight, however many scores each has. If
    several thresholds are equally good, the result is the middle of the widest gap between scores. If `wrong` is empty,
    it is half of the lowest `right`.
    """
    if not len(right):
        return 1.0
    if not len(wrong):
        return float(right.min() / 2)
    seen = np.unique(np.concatenate([[0.0], right, wrong, [1.0]]))
    lines = np.concatenate([[0.0], (seen[1:] + seen[:-1]) / 2, [1.0]])
    widths = np.concatenate([[0.0], np.diff(seen), [0.0]])
    taken = _share_above(right, lines) - _share_above(wrong, lines)
    best = np.flatnonzero(taken >= taken.max() - 1e-12)
    return float(lines[best[np.argmax(widths[best])]])


def _share_above(scores: FloatArray, lines: FloatArray) -> FloatArray:
    below = np.searchsorted(np.sort(scores), lines, side="left")
    share: FloatArray = 1 - below / len(scores)
    return share
