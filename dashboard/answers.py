"""A short-lived cache of query results that viewers share: twenty viewers of one page cost the store one query."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

MAX_ANSWERS: Final = 512

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Kept:
    """A cached result, or one that is being computed. Times are of the monotonic clock, in seconds."""

    answer: Future[Any]
    answered_at: float = 0.0
    until: float = float("inf")  # the longest that its caller allowed it to be cached

    def serves(self, now: float, seconds: float) -> bool:
        """Return whether the result is at most `seconds` old and has not expired."""
        return now < self.until and now < self.answered_at + seconds


class Answers:
    """Results by query. If a query is running already, callers wait for its result. Errors are not cached.

    Results are shared by all callers, who must not change them in place.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_answers: int = MAX_ANSWERS) -> None:
        self._clock = clock
        self._max_answers = max_answers
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get(self, question: Hashable, seconds: float, ask: Callable[[], Answer]) -> Answer:
        """Return the result of `ask`, at most `seconds` old. Raises what `ask` raises."""
        with self._lock:
            kept, now = self._kept.get(question), self._clock()
            is_mine = kept is None or (kept.answer.done() and not kept.serves(now, seconds))
            if kept is None or is_mine:
                self._forget()
                kept = self._kept[question] = _Kept(Future())
            self._kept.move_to_end(question)
        found = kept.answer
        if not is_mine:
            return cast(Answer, found.result())
        try:
            answer = ask()
        except BaseException as error:
            with self._lock:
                if self._kept.get(question) is kept:
                    del self._kept[question]
            found.set_exception(error)
            raise
        with self._lock:
            kept.answered_at = self._clock()
            kept.until = kept.answered_at + seconds
        found.set_result(answer)
        return answer

    def clear(self) -> None:
        """Remove all results."""
        with self._lock:
            self._kept.clear()

    def _forget(self) -> None:
        """Remove expired results, and the oldest if there is no room for one more."""
        now = self._clock()
        for question in [question for question, kept in self._kept.items() if kept.until <= now]:
            del self._kept[question]
        while len(self._kept) >= self._max_answers:
            self._kept.popitem(last=False)
