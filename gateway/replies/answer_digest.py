"""The keyed hash of an answer, taken as it leaves for its client; nothing of it is kept."""

import hmac


class AnswerDigest:
    """Accepts a stream's events as they go, and a whole answer at once."""

    __slots__ = ("_hash", "_size")

    def __init__(self, begun: "hmac.HMAC") -> None:
        self._hash = begun
        self._size = 0

    def take(self, data: bytes) -> None:
        """Accept a piece of a stream."""
        self._size += len(data)
        self._hash.update(data)

    def with_end(self, end: bytes) -> str | None:
        """Return the hash of all pieces and what ends them; `None` if nothing was sent. The last call of all."""
        self.take(end)
        return self._hash.hexdigest() if self._size else None
