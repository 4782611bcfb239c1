"""Hashes of many entries: as a dictionary keeps them, in less memory."""

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.audit.entry_hashes import EntryHashes

HASHES = st.one_of(
    st.integers(0, 9).map(lambda number: hashlib.sha256(bytes([number])).hexdigest()),
    st.sampled_from(["", "not a hash", "A" * 64, "0" * 64, "00 " * 32]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "delete", "cut", "upto"]), st.integers(0, 30), HASHES), max_size=40)


@given(STEPS)
def test_it_keeps_what_a_dictionary_keeps(steps: list[tuple[str, int, str]]) -> None:
    found, wanted = EntryHashes(), dict[int, str]()
    for what, number, digest in steps:
        if what == "set":
            found[number] = wanted[number] = digest
        elif what == "delete" and number in wanted:
            del found[number], wanted[number]
        elif what in ("cut", "upto"):
            wanted = {entry: of for entry, of in wanted.items() if entry <= number}
            if what == "cut":
                found.cut(number)
            else:
                found = found.upto(number)
        assert found == wanted and list(found.pairs()) == sorted(wanted.items())
        assert (number in found) == (number in wanted) and len(found) == len(wanted)


@pytest.mark.parametrize("number", [-1, 2**63, 10**30])
def test_a_number_that_no_entry_has_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="not an entry's number"):
        EntryHashes()[number] = "0" * 64


def test_an_entry_takes_forty_bytes() -> None:
    count = 50_000
    tracemalloc.start()
    try:
        found = EntryHashes((number, f"{number:064x}") for number in range(1, count + 1))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == count and size < 60 * count
