"""Keys as text: their form, their digest under a pepper, their ids."""

import hashlib
import hmac
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.access.keys import KEY_LENGTH, KEY_PREFIX, digest_of, hint_of, is_well_formed, new_key, new_key_id

KEY = new_key(bytes(range(32)))
RANDOM = st.binary(min_size=32, max_size=32)


@settings(max_examples=80, deadline=None)
@given(RANDOM)
def test_a_new_key_is_well_formed_and_safe_in_a_header_and_a_url(random: bytes) -> None:
    key = new_key(random)
    assert is_well_formed(key)
    assert len(key) == KEY_LENGTH and key.startswith(KEY_PREFIX)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", key)


@settings(max_examples=80, deadline=None)
@given(RANDOM, RANDOM)
def test_different_random_bytes_make_different_keys(one: bytes, other: bytes) -> None:
    assert (new_key(one) == new_key(other)) == (one == other)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_is_made_of_thirty_two_bytes_only(length: int) -> None:
    with pytest.raises(ValueError, match=f"32 random bytes, not {length}"):
        new_key(bytes(length))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tk-",
        KEY[:-1],  # one short
        KEY + "A",  # one long
        "tk-" + "A" * 1_000_000,
        KEY + "\n",  # where `$` would match
        KEY[:-1] + "\n",
        KEY[:-1] + "\x00",
        KEY[:-1] + "=",
        KEY[:-1] + "+",
        KEY[:-1] + "é",
        KEY[:-1] + "\u0661",  # a digit, but not an ASCII one
        " " + KEY[:-1],
        "sk-" + KEY[3:],
        "TK-" + KEY[3:],
    ],
    ids=lambda text: ascii(text[:3] + text[-1:]),
)
def test_nonsense_is_not_well_formed(text: str) -> None:
    assert not is_well_formed(text)


def test_a_digest_is_hmac_sha256_under_the_pepper() -> None:
    assert digest_of(KEY, b"pepper") == hmac.new(b"pepper", KEY.encode(), hashlib.sha256).digest()
    assert digest_of(KEY, b"pepper") != digest_of(KEY, b"salt")
    assert len(digest_of(KEY, b"")) == 32


def test_a_hint_is_the_last_four_characters() -> None:
    assert hint_of(KEY) == KEY[-4:]


def test_key_ids_list_in_the_order_they_were_made() -> None:
    ids = [new_key_id(milliseconds * 1_000_000) for milliseconds in (1, 2, 1_793_620_800_123)]
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"key_[0-9a-f]{32}", key_id) for key_id in ids)
