"""Answers kept for a moment and shared: twenty viewers of one page cost the store one read."""

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
    """An answer, or one that is being asked for. Times are the clock's."""

    answer: Future[Any]
    answered_at: float = 0.0
    until: float = float("inf")  # as long as whoever asked for it would have it kept

    def serves(self, now: float, seconds: float) -> bool:
        """Return whether it may be given to someone who wants an answer at most `seconds` old."""
        return now < self.until and now < self.answered_at + seconds


class Answers:
    """Answers by question. A question that is being asked is waited for, not asked twice; failures are not kept.

    What is given is shared by all who ask: nobody may change it in place.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_answers: int = MAX_ANSWERS) -> None:
        self._clock = clock
        self._max_answers = max_answers
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get(self, question: Hashable, seconds: float, ask: Callable[[], Answer]) -> Answer:
        """Return the answer, at most `seconds` old. Raises what `ask` raises."""
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
        """Forget all answers."""
        with self._lock:
            self._kept.clear()

    def _forget(self) -> None:
        """Drop what is too old to be given, and what was asked longest ago to make room for one more."""
        now = self._clock()
        for question in [question for question, kept in self._kept.items() if kept.until <= now]:
            del self._kept[question]
        while len(self._kept) >= self._max_answers:
            self._kept.popitem(last=False)
