"""A copy of an answer, taken as it leaves for its client."""


class AnswerCopy:
    """What a client is sent of one answer, up to a size beyond which it is not worth keeping."""

    __slots__ = ("_max_bytes", "_pieces", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        """Record a piece of a stream."""
        self._size += len(data)
        if self._size <= self._max_bytes:
            self._pieces.append(data)
        elif self._pieces:
            self._pieces = []

    def with_end(self, end: bytes) -> tuple[bytes, bytes] | None:
        """Return a stream's events and its end, in bytes; `None` if together they exceed the bound of a copy."""
        if self._size + len(end) > self._max_bytes:
            return None
        return b"".join(self._pieces), end
