"""Unsettled amounts of one gateway in a window, as Redis knows them; they expire with the gateway's session.

Redis counts these amounts like any others. If the gateway is not heard from in time, Redis frees them; if the gateway
is still alive, it reports them again.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from backends.counters.amounts import deltas, merge

_Books: TypeAlias = tuple[dict[int, int], dict[int, int]]  # charges by bucket, leases by end bucket


class OpenCharges:
    """Amounts by bucket that were charged or set aside and may still be refunded, as charges and as leases."""

    __slots__ = ("_books", "_sent", "_told", "is_told")

    def __init__(self) -> None:
        self._books: _Books = ({}, {})
        self._sent: _Books | None = None
        self._told: _Books = ({}, {})  # what Redis holds as open, including unused leases
        self.is_told = True  # Redis knows which amounts have been settled

    def begin(self, pieces: Iterable[tuple[bool, int, int]]) -> None:
        """Count amounts, given as (is a lease, bucket, amount), as open."""
        for is_lease, bucket, amount in pieces:
            book = self._books[is_lease]
            book[bucket] = book.get(bucket, 0) + amount

    def change(self, bucket: int, amount: int) -> None:
        """Count an amount more as open, charged in a bucket; a negative one less."""
        book = self._books[0]
        left = book.get(bucket, 0) + amount
        if left > 0:
            book[bucket] = left
        else:
            book.pop(bucket, None)  # it may have left the window earlier

    def end(self, pieces: Iterable[tuple[bool, int, int]]) -> None:
        """Stop counting amounts as open."""
        for is_lease, bucket, amount in pieces:
            book = self._books[is_lease]
            left = book.get(bucket, 0) - amount
            if left > 0:
                book[bucket] = left
            else:
                book.pop(bucket, None)  # it may have left the window earlier

    def pack(self, oldest: int, leases: Iterable[tuple[int, int]]) -> list[list[tuple[int, int, int]]]:
        """Return the open amounts for sending: charges, and leases with unused ones, given as (end, amount).

        Charges before bucket `oldest` count no more and are dropped.
        """
        for book in self._books:
            for bucket in [bucket for bucket in book if bucket < oldest]:
                del book[bucket]
        charges, leased = self._books[0].copy(), self._books[1].copy()
        for end, amount in leases:
            leased[end] = leased.get(end, 0) + amount
        self._sent = (charges, leased)
        self.is_told = True
        return [deltas(charges), deltas(leased)]

    def deliver(self, granted: Mapping[int, int]) -> None:
        """Assume that Redis knows what was packed, and what it has leased since, by end bucket."""
        if self._sent is not None:
            self._told, self._sent = self._sent, None
        merge(granted, self._told[1])

    def undo(self) -> None:
        """Assume that Redis does not know what was packed."""
        self._sent = None
        self.is_told = False

    def forget_told(self) -> _Books:
        """Assume that Redis has lost everything that it was sent. Return what it had: charges and leases."""
        told, self._told = self._told, ({}, {})
        return told
