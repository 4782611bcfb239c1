"""Answers kept for a moment and shared: twenty viewers of one page cost the store one read."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

MAX_ANSWERS: Final = 512

Answer = TypeVar("Answer")


class Answers:
    """Answers by question. A question that is being asked is waited for, not asked twice; failures are not kept.

    What is given is shared by all who ask: nobody may change it in place.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_answers: int = MAX_ANSWERS) -> None:
        self._clock = clock
        self._max_answers = max_answers
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Future[Any]]] = OrderedDict()  # until when, of which question

    def get(self, question: Hashable, seconds: float, ask: Callable[[], Answer]) -> Answer:
        """Give the answer, at most `seconds` old. Raises what `ask` raises."""
        with self._lock:
            until, found = self._kept.get(question, (0.0, None))
            is_mine = found is None or (found.done() and until <= self._clock())
            if is_mine:
                found = Future()
                self._forget()
                self._kept[question] = (float("inf"), found)
            self._kept.move_to_end(question)
        assert found is not None  # made above where it was not there
        if not is_mine:
            return cast(Answer, found.result())
        try:
            answer = ask()
        except BaseException as error:
            with self._lock:
                if self._kept.get(question, (0.0, None))[1] is found:
                    del self._kept[question]
            found.set_exception(error)
            raise
        with self._lock:
            if self._kept.get(question, (0.0, None))[1] is found:
                self._kept[question] = (self._clock() + seconds, found)
        found.set_result(answer)
        return answer

    def clear(self) -> None:
        """Forget all answers."""
        with self._lock:
            self._kept.clear()

    def _forget(self) -> None:
        """Drop what is too old to be given, and what was asked longest ago to make room for one more."""
        now = self._clock()
        for question in [question for question, (until, _) in self._kept.items() if until <= now]:
            del self._kept[question]
        while len(self._kept) >= self._max_answers:
            self._kept.popitem(last=False)
