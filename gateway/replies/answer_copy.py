"""A copy of an answer, made while it is sent to the client."""


class AnswerCopy:
    """The bytes of one answer that the client is sent, up to a maximum size beyond which no copy is kept."""

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
        """Return the events and the end of a stream as bytes; `None` if together they exceed the maximum size."""
        if self._size + len(end) > self._max_bytes:
            return None
        return b"".join(self._pieces), end
