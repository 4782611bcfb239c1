"""Slow queries: run in background threads, with results that viewers share. A page shows a placeholder, waits a
moment, and is redrawn until the results are there.
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

from analytics.access_scope import AccessScope
from dashboard.reader import question_key, readers

_THREADS: Final = 4
_BREATH_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 0.1  # total wait per page run: results that arrive so soon save a redraw
_MAX_ANSWERS: Final = 128
_GIVEN_ON_SECONDS: Final = 60.0  # minimum age up to which a stale result is shown while a new one is computed

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Pending:
    """A placeholder for a result that is still being computed, since `since` (UTC)."""

    since: datetime


class _Times(NamedTuple):
    """Monotonic times: until when a result is fresh, and until when it may be shown while a new one is computed."""

    holds: float
    given_on: float


class SlowAnswers:
    """Runs queries in a few threads and caches their results. `page_waits`: whether this thread's page needs a result.

    Queries that always take seconds (`ask_beside`) run one at a time in a thread of their own, so they block no others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="slow-answer")
        self._thread_beside = ThreadPoolExecutor(1, thread_name_prefix="late-answer")
        self._kept: OrderedDict[Hashable, tuple[_Times, datetime, Future[Any]]] = OrderedDict()
        # Stale results that may still be shown, with the time until when.
        self._before: dict[Hashable, tuple[float, Future[Any]]] = {}
        self._page = threading.local()

    def ask(
        self, question: Callable[..., Answer], access: AccessScope, keep_seconds: float, *arguments: Any, **options: Any
    ) -> Answer | Pending:
        """Return `question(store, ...)` restricted to `access`; `Pending` if there is no result yet. Raises its errors.

        The page is redrawn when the result is there. A result older than `keep_seconds` is returned while a new one is
        computed, until it is older than twice that and than a minute.
        """
        return self._look(self._threads, question, access, keep_seconds, arguments, options)

    def ask_beside(
        self, question: Callable[..., Answer], access: AccessScope, keep_seconds: float, *arguments: Any, **options: Any
    ) -> Answer | Pending:
        """Return as `ask`, for a query that always takes seconds. The page is complete without it and polls for it."""
        return self._look(self._thread_beside, question, access, keep_seconds, arguments, options)

    def ahead(
        self, question: Callable[..., Any], access: AccessScope, keep_seconds: float, *arguments: Any, **options: Any
    ) -> None:
        """Start a query that a page may `ask` for later. No page waits for it; if it fails, the page runs it again."""
        key, _, found, _ = self._find(self._threads, question, access, keep_seconds, arguments, options)
        found.add_done_callback(lambda done: self._forget_failed(key, done))

    def _forget_failed(self, key: Hashable, done: Future[Any]) -> None:
        with self._lock:
            if done.exception() is not None and key in self._kept and self._kept[key][2] is done:
                del self._kept[key]

    def _find(
        self,
        threads: ThreadPoolExecutor,
        question: Callable[..., Any],
        access: AccessScope,
        keep_seconds: float,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> tuple[Hashable, datetime, Future[Any], Future[Any] | None]:
        """Start a query unless there is a fresh result. Return its key, its start, its future, and the future of the
        stale result, if that may still be shown.
        """
        key = question_key(question, access, arguments, options)
        with self._lock:
            now = self._clock()
            times, since, found = self._kept.get(key, (_Times(0.0, 0.0), datetime.now(UTC), None))
            if found is None or (found.done() and times.holds <= now):
                since = datetime.now(UTC)
                if found is not None and found.exception() is None:
                    self._before[key] = (times.given_on, found)
                self._drop_old(now)
                found = threads.submit(_ask, question, access, arguments, options)
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
        """Remove expired results, such as those about a past hour, which no page asks for again."""
        old = [key for key, (times, _, found) in self._kept.items() if times.given_on <= now and found.done()]
        for key in old:
            del self._kept[key]
        self._before = {key: given for key, given in self._before.items() if now < given[0]}

    def _look(
        self,
        threads: ThreadPoolExecutor,
        question: Callable[..., Answer],
        access: AccessScope,
        keep_seconds: float,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Answer | Pending:
        key, since, found, before = self._find(threads, question, access, keep_seconds, arguments, options)
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
                self._kept.pop(key, None)  # the next page runs it again
        return cast(Answer, found.result())

    def begin_page(self) -> None:
        """Clear the list of results that this thread's page waits for."""
        self._page.awaited, self._page.waits_beside = [], False
        self._page.patience = _PATIENCE_SECONDS

    def await_page(self, seconds: float, breathe: Callable[[], object]) -> bool:
        """Wait at most `seconds` for the results that this thread's page needs; return whether any is there.

        `breathe` is called twenty times a second, and may raise to stop waiting.
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
        """Return whether this thread's page got a `Pending` from `ask`."""
        return bool(self._awaited)

    @property
    def page_waits_beside(self) -> bool:
        """Return whether this thread's page got a `Pending` from `ask_beside`."""
        return bool(getattr(self._page, "waits_beside", False))

    @property
    def _awaited(self) -> list[Future[Any]]:
        return list(getattr(self._page, "awaited", ()))


@st.cache_resource(show_spinner=False)
def slow_answers() -> SlowAnswers:
    """Return this process's `SlowAnswers`."""
    return SlowAnswers()


def _ask(
    question: Callable[..., Answer], access: AccessScope, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Answer:
    with readers().borrow(access) as store:
        return question(store, *arguments, **options)
