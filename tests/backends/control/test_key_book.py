"""A book of keys holds what a dictionary would that is copied and changed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backends.control import key_entries
from backends.control.key_entries import KeyBook
from contracts.access.identity import Identity
from contracts.serving.configuration import KeyEntry

DIGESTS = st.integers(0, 12).map(lambda number: bytes([number]) * 32)


def entry(digest: bytes, name: str) -> KeyEntry:
    return KeyEntry(digest=digest, identity=Identity(tenant=name))


CHANGES = st.dictionaries(DIGESTS, st.sampled_from(["acme", "globex", None]))


@given(first=st.dictionaries(DIGESTS, st.just("acme")), changes=st.lists(CHANGES, max_size=6), most=st.integers(0, 8))
def test_a_book_equals_a_changed_copy_and_leaves_the_one_before_as_it_was(
    first: dict[bytes, str], changes: list[dict[bytes, str | None]], most: int
) -> None:
    kept = key_entries._MOST_APART
    key_entries._MOST_APART = most  # type: ignore[misc]
    try:
        expected: dict[bytes, Any] = {digest: entry(digest, name) for digest, name in first.items()}
        books = [(KeyBook(expected.copy()), expected.copy())]
        for change in changes:
            made = {digest: None if name is None else entry(digest, name) for digest, name in change.items()}
            book = books[-1][0].changed(made)
            for digest, one in made.items():
                expected.pop(digest, None) if one is None else expected.update({digest: one})
            books.append((book, expected.copy()))
        for book, equal in books:
            assert dict(book) == equal and len(book) == len(equal)
            assert all((digest in book) == (digest in equal) for digest in [bytes([n]) * 32 for n in range(13)])
            assert all(book.get(bytes([n]) * 32) == equal.get(bytes([n]) * 32) for n in range(13))
    finally:
        key_entries._MOST_APART = kept  # type: ignore[misc]
