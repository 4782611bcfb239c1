"""Answers that take longer than a page may: found in the background, shared, and asked for again till then."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

import streamlit as st

from analytics.reach import Reach
from dashboard.reader import question_key, readers

_THREADS: Final = 2
_MAX_ANSWERS: Final = 128
_GIVEN_ON_SECONDS: Final = 60.0  # at least: so old may an answer be that is given on

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that is not there yet; it was asked for at `since` (UTC)."""

    since: datetime


class SlowAnswers:
    """Answers found by two threads, kept for a while. `has_pending` says whether this thread's page waits for any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="slow-answer")
        self._kept: OrderedDict[Hashable, tuple[float, datetime, Future[Any]]] = OrderedDict()
        # Answered, and given on for a while (until when, by the clock) as the next is found.
        self._before: dict[Hashable, tuple[float, Future[Any]]] = {}
        self._page = threading.local()

    def ask(
        self, question: Callable[..., Answer], reach: Reach, keep_seconds: float, *arguments: Any, **options: Any
    ) -> Answer | Pending:
        """Give `question(store, ...)` within reach, or `Pending` where it never was answered. Raises what it raised.

        An answer older than `keep_seconds` is given on until the next one is there, or it is older than twice that, and
        than a minute: figures of hours ago are not those of now.
        """
        key = question_key(question, reach, arguments, options)
        with self._lock:
            until, since, found = self._kept.get(key, (0.0, datetime.now(UTC), None))
            if found is None or (found.done() and until <= self._clock()):
                since = datetime.now(UTC)
                if found is not None and found.exception() is None:
                    self._before[key] = (until + max(keep_seconds, _GIVEN_ON_SECONDS - keep_seconds), found)
                found = self._threads.submit(_ask, question, reach, arguments, options)
                self._kept[key] = (self._clock() + keep_seconds, since, found)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_ANSWERS:
                forgotten, _ = self._kept.popitem(last=False)
                self._before.pop(forgotten, None)
            if found.done():
                self._before.pop(key, None)
            until, before = self._before.get(key, (0.0, None))
            is_recent = self._clock() < until
        if not found.done():
            if before is not None and is_recent:
                return cast(Answer, before.result())
            self._page.waits = True
            return Pending(since)
        if found.exception() is not None:
            with self._lock:
                self._kept.pop(key, None)  # the next page asks again
        return cast(Answer, found.result())

    def begin_page(self) -> None:
        """Forget what this thread's page waited for."""
        self._page.waits = False

    @property
    def page_waits(self) -> bool:
        """Say whether anything that this thread's page asked for is not there yet."""
        return bool(getattr(self._page, "waits", False))


@st.cache_resource(show_spinner=False)
def slow_answers() -> SlowAnswers:
    """Give this process's slow answers."""
    return SlowAnswers()


def _ask(question: Callable[..., Answer], reach: Reach, arguments: tuple[Any, ...], options: dict[str, Any]) -> Answer:
    with readers().borrow(reach) as store:
        return question(store, *arguments, **options)
