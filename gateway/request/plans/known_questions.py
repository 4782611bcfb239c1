"""Bodies that were answered with a kept answer: the next that is the same byte for byte need not be read again."""

from typing import Final

from contracts.api.chat import ChatRequest
from gateway.cache.fingerprint import Context
from gateway.request.plans.cache_plan import CachePlan

_MOST_BYTES: Final = 4 << 20  # of bodies, in each of two generations
_LARGEST_BYTES: Final = 64 << 10  # of one body: larger ones would drive out too many
_ENTRY_BYTES: Final = 1000  # what one takes beside its body


class Question:
    """What a body asks for, without its messages, and its name within a context, which is one configuration's.

    Whatever looks at messages has looked at these under that configuration, and would say the same again.
    """

    __slots__ = ("context", "name", "request")

    def __init__(self, request: ChatRequest, context: Context, name: bytes) -> None:
        self.request = request
        self.context = context
        self.name = name

    def is_of(self, plan: CachePlan | None) -> bool:
        """Return whether it was asked under the configuration that a plan was made of."""
        return plan is not None and self.context is plan.context


class KnownQuestions:
    """Questions by credential, as it was sent, and body, so that none is found by another's key.

    Two generations: the older is dropped when the newer is full, which is nearly the least recently used.
    """

    __slots__ = ("_newer", "_older", "_size")

    def __init__(self) -> None:
        self._newer: dict[tuple[bytes, bytes], Question] = {}
        self._older: dict[tuple[bytes, bytes], Question] = {}
        self._size = 0  # of the newer, in bytes

    def find(self, sent: bytes, body: bytes) -> Question | None:
        """Return what a body asks for, if it came with this credential before."""
        if not self._newer and not self._older:
            return None  # nor is the body hashed, which where nothing is kept would be for nothing
        found = self._newer.get((sent, body))
        if found is None and self._older:
            found = self._older.pop((sent, body), None)
            if found is not None:
                self.note(sent, body, found)
        return found

    def note(self, sent: bytes, body: bytes, question: Question) -> None:
        """Remember what a body asks for."""
        if len(body) > _LARGEST_BYTES:
            return
        size = len(body) + _ENTRY_BYTES
        if self._size + size > _MOST_BYTES:
            self._older, self._newer, self._size = self._newer, {}, 0
        if (sent, body) not in self._newer:
            self._size += size
        self._newer[sent, body] = question
