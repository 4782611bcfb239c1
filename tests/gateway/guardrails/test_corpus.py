"""What the detectors find and leave alone in a corpus of texts, many of them made to be mistaken."""

import pytest

from bench.guardrail_corpus import FILES, Score, read_corpus, scores_of, together


def _told(score: Score) -> str:
    return "\n".join([*(f"false: {text}" for text in score.false), *(f"missed: {text}" for text in score.missed)])


@pytest.mark.parametrize(
    ("name", "precision", "recall"),
    [
        ("pii", 0.97, 0.99),
        ("secrets", 0.95, 0.99),
        ("injection", 0.97, 0.90),
        ("canary", 1.0, 1.0),
        ("injection_definitions", 0.97, 0.90),
        # Nobody has tuned on these: how much the phrases miss of what others would say.
        ("injection_unseen", 0.95, 0.60),
    ],
)
def test_precision_and_recall_hold(name: str, precision: float, recall: float) -> None:
    score = together(scores_of(name))
    print(f"{name}: precision {score.precision:.3f}, recall {score.recall:.3f}")
    assert score.precision >= precision, _told(score)
    assert score.recall >= recall, _told(score)


def test_every_file_has_texts_of_both_sorts() -> None:
    for name in FILES:
        lines = read_corpus(name)
        positives = sum(bool(line.kinds) for line in lines)
        assert positives >= 10 and len(lines) - positives >= 10, name
