"""The nearest of few vectors and of many, as they come and go."""

import numpy as np
import pytest

from gateway.cache.nearest_vectors import NearestVectors

DIMENSIONS = 384


def vectors(count: int, seed: int = 1) -> list[bytes]:
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype("<f4")
    return [(row / np.linalg.norm(row)).astype("<f4").tobytes() for row in drawn]


def near(vector: bytes, share: float) -> bytes:
    row = np.frombuffer(vector, "<f4") + share * np.frombuffer(vectors(1, seed=9)[0], "<f4")
    return (row / np.linalg.norm(row)).astype("<f4").tobytes()


def test_nothing_is_near_where_nothing_is() -> None:
    assert NearestVectors(DIMENSIONS).nearest(vectors(1)[0], 8) == []


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_the_nearest_is_found_among_few_and_many(count: int) -> None:
    kept, known = NearestVectors(DIMENSIONS), vectors(count)
    for number, vector in enumerate(known):
        kept.add(number + 10, vector)
    assert len(kept) == count
    for place in {0, count // 2, count - 1}:
        found = kept.nearest(near(known[place], 0.1), 3)
        assert len(found) == min(count, 3) and [cosine for _, cosine in found] == sorted(
            (cosine for _, cosine in found), reverse=True
        )
        assert found[0][0] == place + 10 and found[0][1] == pytest.approx(0.995, abs=0.005)
    kept.remove(10)
    kept.remove(12345)  # was never there
    assert len(kept) == count - 1
    assert 10 not in [number for number, _ in kept.nearest(known[0], count)]


def test_the_cosine_is_the_same_for_few_and_many() -> None:
    known = vectors(200)
    few, many = NearestVectors(DIMENSIONS), NearestVectors(DIMENSIONS)
    for number, vector in enumerate(known):
        many.add(number, vector)
    few.add(7, known[7])
    asked = near(known[7], 0.3)
    [one], [other] = few.nearest(asked, 1), many.nearest(asked, 1)
    assert one[0] == other[0] == 7
    assert one[1] == pytest.approx(other[1], abs=2e-3)


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has 2 dimensions; 384 are expected"):
        NearestVectors(DIMENSIONS).add(1, bytes(8))
