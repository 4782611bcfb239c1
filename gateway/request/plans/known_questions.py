"""Bodies that were answered from the cache: the next identical body need not be parsed again."""

from typing import Final

from contracts.api.chat import ChatRequest
from gateway.cache.fingerprint import Context
from gateway.request.plans.cache_plan import CachePlan

_MOST_BYTES: Final = 4 << 20  # of bodies, in each of two generations
_LARGEST_BYTES: Final = 64 << 10  # of one body: larger ones would drive out too many
_ENTRY_BYTES: Final = 1000  # what one takes beside its body


class Question:
    """What a body asks for, without its messages, and its cache key under one configuration.

    Guardrails and rules that read messages have inspected these under that configuration, and would decide the same
    again.
    """

    __slots__ = ("context", "name", "request")

    def __init__(self, request: ChatRequest, context: Context, name: bytes) -> None:
        self.request = request
        self.context = context
        self.name = name

    def is_of(self, plan: CachePlan | None) -> bool:
        """Return whether it was stored under the configuration of this plan."""
        return plan is not None and self.context is plan.context


class KnownQuestions:
    """Questions by credential and body, so that no other key finds them.

    There are two generations. If the newer is full it becomes the older one, and that is dropped: nearly an LRU cache.
    """

    __slots__ = ("_newer", "_older", "_size")

    def __init__(self) -> None:
        self._newer: dict[tuple[bytes, bytes], Question] = {}
        self._older: dict[tuple[bytes, bytes], Question] = {}
        self._size = 0  # of the newer, in bytes

    def find(self, sent: bytes, body: bytes) -> Question | None:
        """Return what a body asks for, if the same credential sent the same body before."""
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
