"""Hashes of many entries by their numbers, in a fifth of a dictionary's memory: logs have millions of entries."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

_BYTES: Final = 32  # SHA-256
_MOST: Final = 2**63


class EntryHashes(MutableMapping[int, str]):
    """Hexadecimal SHA-256 by entry number, ascending; 40 bytes each. Texts of another form are stored unchanged.

    Adding an entry at the end is fast; an insertion moves those after it.
    """

    def __init__(self, pairs: Iterable[tuple[int, str]] = ()) -> None:
        self._numbers = array("q")
        self._digests = bytearray()
        self._odd: dict[int, str] = {}  # texts of another form
        for number, digest in pairs:
            self[number] = digest

    def __setitem__(self, number: int, digest: str) -> None:
        """Set an entry's hash. Raises ValueError if the number is not positive."""
        if not 0 <= number < _MOST:
            raise ValueError(f"{number} is not an entry's number")
        packed = _packed(digest)
        if packed is None:
            self._odd[number], packed = digest, bytes(_BYTES)
        else:
            self._odd.pop(number, None)
        numbers = self._numbers
        if not numbers or number > numbers[-1]:
            numbers.append(number)
            self._digests += packed
            return
        place = bisect_left(numbers, number)
        begin = place * _BYTES
        is_there = numbers[place] == number
        if not is_there:
            numbers.insert(place, number)
        self._digests[begin : begin + _BYTES * is_there] = packed

    def __getitem__(self, number: int) -> str:
        return self._at(self._place(number))

    def __delitem__(self, number: int) -> None:
        place = self._place(number)
        del self._numbers[place], self._digests[place * _BYTES : (place + 1) * _BYTES]
        self._odd.pop(number, None)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def pairs(self) -> Iterator[tuple[int, str]]:
        """Yield numbers with their hashes, ascending: faster than `items`, which looks each up."""
        for place, number in enumerate(self._numbers):
            yield number, self._at(place)

    def upto(self, last: int) -> "EntryHashes":
        """Return the hashes of entries up to and including `last`."""
        return EntryHashes(pair for pair in self.pairs() if pair[0] <= last)

    def cut(self, last: int) -> None:
        """Remove the hashes of entries after `last`."""
        place = bisect_right(self._numbers, last)
        del self._numbers[place:], self._digests[place * _BYTES :]
        self._odd = {number: digest for number, digest in self._odd.items() if number <= last}

    def _place(self, number: int) -> int:
        place = bisect_left(self._numbers, number)
        if place == len(self._numbers) or self._numbers[place] != number:
            raise KeyError(number)
        return place

    def _at(self, place: int) -> str:
        odd = self._odd.get(self._numbers[place]) if self._odd else None
        return self._digests[place * _BYTES : (place + 1) * _BYTES].hex() if odd is None else odd


def _packed(digest: str) -> bytes | None:
    try:
        packed = bytes.fromhex(digest)
    except ValueError:
        return None
    return packed if len(packed) == _BYTES and packed.hex() == digest else None
