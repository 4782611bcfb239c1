"""The model itself: its vectors mean something, and do not depend on what else is embedded with them."""

import numpy as np
import pytest

from backends.embedder.base import DIMENSIONS
from backends.embedder.minilm import MiniLM, _Encoder, _Float32
from backends.tokenization.minilm_files import packaged_minilm

TEXTS = ("How do I reset my password?", "I forgot my login and cannot sign in.", "Boil the pasta for ten minutes.")


@pytest.fixture(scope="module")
def model():
    return MiniLM()


def vectors(model, *texts):
    ids = [model.tokenize(text, 256)[0] for text in texts]
    return np.stack([np.frombuffer(vector, "<f4") for vector in model.embed(ids)])


def test_vectors_are_of_length_1_and_near_where_texts_mean_alike(model):
    found = vectors(model, *TEXTS)
    assert found.shape == (3, DIMENSIONS)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    near, far = found[0] @ found[1], found[0] @ found[2]
    assert near > 0.5 > 0.2 > far


def test_a_texts_vector_does_not_depend_on_its_neighbours(model):
    together = vectors(model, *TEXTS, "word " * 300)
    for place, text in enumerate(TEXTS):
        assert vectors(model, text)[0] == pytest.approx(together[place], abs=1e-6)


def test_8_bits_say_what_32_do(model):
    from safetensors.torch import load_file

    weights = {
        name: value
        for name, value in load_file(packaged_minilm("this test needs", "install it") / "model.safetensors").items()
    }
    plain = _Encoder(weights, _Float32)
    ids = [model.tokenize(text, 256)[0] for text in TEXTS]
    exact = plain(ids).numpy()
    assert (vectors(model, *TEXTS) * exact).sum(1).min() > 0.99


def test_of_a_long_text_the_beginning_and_the_end_are_read(model):
    text = "one " * 100 + "two " * 100
    whole, is_whole = model.tokenize(text, 202)
    assert is_whole and len(whole) == 202
    cut, is_whole = model.tokenize(text, 201)
    assert not is_whole and len(cut) == 201
    ids, is_whole = model.tokenize(text, 64)
    assert (len(ids), is_whole) == (64, False)
    assert ids[:48] == whole[:48] and ids[48:] == whole[-16:]
    assert len(model.tokenize("", 64)[0]) == 2  # its marks of beginning and end alone


@pytest.mark.parametrize("word", ["\U0001f600", "\u9b31", "\u0e23\u0e32\u0e04\u0e32", "a" * 120])
def test_a_text_with_a_word_that_it_does_not_know_is_not_read_whole(model, word):
    assert model.tokenize("What does this mean?", 64)[1]
    assert not model.tokenize(f"What does {word} mean?", 64)[1]
