"""Answers that may take longer than a page: found in the background, shared, waited for a moment after the page is
drawn, and asked for again till they are there.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ALL_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar, cast

import streamlit as st

from analytics.reach import Reach
from dashboard.reader import question_key, readers

_THREADS: Final = 4
_BREATH_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 0.1  # of a page as it is drawn, in sum: what comes so soon need not be drawn twice
_MAX_ANSWERS: Final = 128
_GIVEN_ON_SECONDS: Final = 60.0  # at least: so old may an answer be that is given on

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that is not there yet; it was asked for at `since` (UTC)."""

    since: datetime


class _Times(NamedTuple):
    """By the clock: until when an answer holds, and until when it is given on as the next is found."""

    holds: float
    given_on: float


class SlowAnswers:
    """Answers found by a few threads, kept for a while. `page_waits` says whether this thread's page waits for any.

    What takes seconds by nature is asked `beside`: one at a time, so that it keeps nothing else from being found.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="slow-answer")
        self._thread_beside = ThreadPoolExecutor(1, thread_name_prefix="late-answer")
        self._kept: OrderedDict[Hashable, tuple[_Times, datetime, Future[Any]]] = OrderedDict()
        # Answered, and given on for a while (until when, by the clock) as the next is found.
        self._before: dict[Hashable, tuple[float, Future[Any]]] = {}
        self._page = threading.local()

    def ask(
        self, question: Callable[..., Answer], reach: Reach, keep_seconds: float, *arguments: Any, **options: Any
    ) -> Answer | Pending:
        """Return `question(store, ...)` within reach, or `Pending` where it never was answered. Raises what it raised.

        The page waits for it. An answer older than `keep_seconds` is given on until the next one is there, or it is
        older than twice that, and than a minute: figures of hours ago are not those of now.
        """
        return self._look(self._threads, question, reach, keep_seconds, arguments, options)

    def ask_beside(
        self, question: Callable[..., Answer], reach: Reach, keep_seconds: float, *arguments: Any, **options: Any
    ) -> Answer | Pending:
        """Return what `ask` gives, of what takes seconds by nature: the page stands without it, and looks again
        later.
        """
        return self._look(self._thread_beside, question, reach, keep_seconds, arguments, options)

    def ahead(
        self, question: Callable[..., Any], reach: Reach, keep_seconds: float, *arguments: Any, **options: Any
    ) -> None:
        """Start to find what a page may `ask` for later. No page waits for it; where it fails, the page asks again."""
        key, _, found, _ = self._find(self._threads, question, reach, keep_seconds, arguments, options)
        found.add_done_callback(lambda done: self._forget_failed(key, done))

    def _forget_failed(self, key: Hashable, done: Future[Any]) -> None:
        with self._lock:
            if done.exception() is not None and key in self._kept and self._kept[key][2] is done:
                del self._kept[key]

    def _find(
        self,
        threads: ThreadPoolExecutor,
        question: Callable[..., Any],
        reach: Reach,
        keep_seconds: float,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> tuple[Hashable, datetime, Future[Any], Future[Any] | None]:
        """Start to find an answer if it is not there or too old. Give its key, since when it is being found, what
        will hold it, and what holds the one before it where that may be given on."""
        key = question_key(question, reach, arguments, options)
        with self._lock:
            now = self._clock()
            times, since, found = self._kept.get(key, (_Times(0.0, 0.0), datetime.now(UTC), None))
            if found is None or (found.done() and times.holds <= now):
                since = datetime.now(UTC)
                if found is not None and found.exception() is None:
                    self._before[key] = (times.given_on, found)
                self._drop_old(now)
                found = threads.submit(_ask, question, reach, arguments, options)
                holds = now + keep_seconds
                given_on = holds + max(keep_seconds, _GIVEN_ON_SECONDS - keep_seconds)
                self._kept[key] = (_Times(holds, given_on), since, found)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_ANSWERS:
                forgotten, _ = self._kept.popitem(last=False)
                self._before.pop(forgotten, None)
            if found.done():
                self._before.pop(key, None)
            until, before = self._before.get(key, (0.0, None))
            return key, since, found, before if now < until else None

    def _drop_old(self, now: float) -> None:
        """Forget what is not given on any more: answers about an hour that is over are not asked for again."""
        old = [key for key, (times, _, found) in self._kept.items() if times.given_on <= now and found.done()]
        for key in old:
            del self._kept[key]
        self._before = {key: given for key, given in self._before.items() if now < given[0]}

    def _look(
        self,
        threads: ThreadPoolExecutor,
        question: Callable[..., Answer],
        reach: Reach,
        keep_seconds: float,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Answer | Pending:
        key, since, found, before = self._find(threads, question, reach, keep_seconds, arguments, options)
        if not found.done() and before is None and threads is self._threads:
            self._wait_a_little(found)
        if not found.done():
            if before is not None:
                return cast(Answer, before.result())
            if threads is self._thread_beside:
                self._page.waits_beside = True
            else:
                self._page.awaited = [*self._awaited, found]
            return Pending(since)
        if found.exception() is not None:
            with self._lock:
                self._kept.pop(key, None)  # the next page asks again
        return cast(Answer, found.result())

    def begin_page(self) -> None:
        """Forget the slow answers that the page of this thread was waiting for."""
        self._page.awaited, self._page.waits_beside = [], False
        self._page.patience = _PATIENCE_SECONDS

    def await_page(self, seconds: float, breathe: Callable[[], object]) -> bool:
        """Wait for what this thread's page waits for, and return whether any of it came.

        `breathe` is called twenty times a second, and may raise to end the waiting.
        """
        until, awaited = time.monotonic() + seconds, self._awaited
        while (left := until - time.monotonic()) > 0:
            if not wait(awaited, min(left, _BREATH_SECONDS), ALL_COMPLETED).not_done:
                break
            breathe()
        return any(found.done() for found in awaited)

    def _wait_a_little(self, found: Future[Any]) -> None:
        patience, began = getattr(self._page, "patience", 0.0), time.monotonic()
        if patience > 0:
            wait([found], patience)
            self._page.patience = patience - (time.monotonic() - began)

    @property
    def page_waits(self) -> bool:
        """Return whether anything that this thread's page needs was not there when it was asked for."""
        return bool(self._awaited)

    @property
    def page_waits_beside(self) -> bool:
        """Return whether something was not there that the page stands without."""
        return bool(getattr(self._page, "waits_beside", False))

    @property
    def _awaited(self) -> list[Future[Any]]:
        return list(getattr(self._page, "awaited", ()))


@st.cache_resource(show_spinner=False)
def slow_answers() -> SlowAnswers:
    """Return this process's slow answers."""
    return SlowAnswers()


def _ask(question: Callable[..., Answer], reach: Reach, arguments: tuple[Any, ...], options: dict[str, Any]) -> Answer:
    with readers().borrow(reach) as store:
        return question(store, *arguments, **options)
