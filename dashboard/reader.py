"""The dashboard's ways to what it shows: store clients lent to one page run at a time, the control database and plane,
and answers kept for a moment and shared between viewers.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, LifoQueue
from threading import Lock
from typing import Any, Final, TypeVar

import httpx
import streamlit as st

from analytics.reach import EVERYTHING, BoundStore, Reach
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.row_policies import TEAM_READER, TENANT_READER
from contracts.errors import ConfigurationError
from dashboard.answers import Answers
from dashboard.control_plane import open_client
from dashboard.settings import DashboardSettings

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 15  # then the page says that the store does not answer, instead of staying blank
CONTROL_ANSWER_SECONDS: Final = 5
_MAX_IDLE: Final = 64
_THREADS_AHEAD: Final = 4
_LACK_SECONDS: Final = 60.0  # then a user whom the store refused is tried again: the moment may have been a bad one
_PLAIN_READER: Final = "reader"  # the store's user for all rows, beside whom those with row policies may stand

Answer = TypeVar("Answer")


class Readers:
    """Store clients bound to a reach, each lent to one thread at a time. They connect when used, and after a failure.

    Viewers who are bound are asked for as the store's user with row policies, where the store has it.
    """

    def __init__(self, address: StoreAddress, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._lock = Lock()
        self._users: set[str] = set()
        self._lacking: dict[str, float] = {}  # until when a user is taken not to exist
        self._idle: dict[Reach, LifoQueue[StoreClient]] = {}

    @contextmanager
    def borrow(self, reach: Reach = EVERYTHING) -> Iterator[StoreClient]:
        """Lend a client that asks about what is within reach alone."""
        with self._lock:
            idle = self._idle.setdefault(reach, LifoQueue(_MAX_IDLE))
        try:
            client = idle.get_nowait()
        except Empty:
            client = self._open(reach)
        try:
            yield client
        finally:
            # One that asks without row policies is not kept: the next may have them.
            is_makeshift = reach.is_bound and client.address.user == _PLAIN_READER
            if is_makeshift or idle.full():
                client.close()
            else:
                idle.put(client)

    def _open(self, reach: Reach) -> StoreClient:
        if not reach.is_bound:
            return StoreClient(self._address, answer_seconds=PATIENCE_SECONDS)
        user = TENANT_READER if reach.team is None else TEAM_READER
        if self._knows(user):
            policed = replace(self._address, user=user)
            return BoundStore(policed, reach, is_policed=True, answer_seconds=PATIENCE_SECONDS)
        return BoundStore(self._address, reach, answer_seconds=PATIENCE_SECONDS)

    def _knows(self, user: str) -> bool:
        """Return whether the store has a user with row policies: its own has, a server's where its users.xml is
        ours.
        """
        if user in self._users:
            return True
        if self._address.user != _PLAIN_READER:
            return False  # an operator's own user, whose password no other has
        if self._lacking.get(user, float("-inf")) > self._clock():
            return False
        client = StoreClient(replace(self._address, user=user), answer_seconds=PATIENCE_SECONDS)
        try:
            client.query("SELECT 1")
        except ConfigurationError:
            log.warning(
                "store_user_missing user=%s: queries of restricted viewers are restricted by the program only", user
            )
            self._lacking[user] = self._clock() + _LACK_SECONDS
            return False
        finally:
            client.close()
        self._users.add(user)
        return True


@st.cache_resource(show_spinner=False)
def settings() -> DashboardSettings:
    """Return this process's settings."""
    return DashboardSettings()


@st.cache_resource(show_spinner=False)
def secrets() -> SecretFiles:
    """Return this installation's secrets, of which a dashboard elsewhere has none."""
    return SecretFiles(settings().data / "secrets")


@st.cache_resource(show_spinner=False)
def readers() -> Readers:
    """Return this process's store clients. Raises ConfigurationError if its address is unusable."""
    return Readers(settings().store_address())


@st.cache_resource(show_spinner=False)
def control_database() -> ControlDatabase:
    """Return the control database, which the dashboard only reads. Raises ConfigurationError on an unusable URL."""
    return ControlDatabase(settings().database_address)


@st.cache_resource(show_spinner=False)
def control_connections() -> httpx.Client:
    """Return this process's connections to the control plane."""
    return open_client(settings().control_plane_url)


@st.cache_resource(show_spinner=False)
def answers() -> Answers:
    """Return the answers of the store that are kept for a moment."""
    return Answers()


@st.cache_resource(show_spinner=False)
def control_answers() -> Answers:
    """Return what the control database and plane said a moment ago."""
    return Answers()


def ask_store(question: Callable[..., Answer], reach: Reach, seconds: float, *arguments: Any, **options: Any) -> Answer:
    """Return `question(store, *arguments, **options)` within reach, at most `seconds` old. Raises what it raises."""

    def ask() -> Answer:
        with readers().borrow(reach) as store:
            return question(store, *arguments, **options)

    return answers().get(question_key(question, reach, arguments, options), seconds, ask)


@st.cache_resource(show_spinner=False)
def _threads_ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_AHEAD, thread_name_prefix="ahead")


def ask_ahead(question: Callable[..., Any], reach: Reach, seconds: float, *arguments: Any, **options: Any) -> None:
    """Start what `ask_store` will be asked for in a moment. A failure is told to the one that asks then."""
    _threads_ahead().submit(ask_store, question, reach, seconds, *arguments, **options)


def ask_database(question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
    """Return `question(session, *arguments, **options)` of the control database, at most five seconds old."""

    def ask() -> Answer:
        with control_database().session() as session:
            return question(session, *arguments, **options)

    return control_answers().get(question_key(question, EVERYTHING, arguments, options), CONTROL_ANSWER_SECONDS, ask)


def forget_control_answers() -> None:
    """Forget what the control plane said: something was changed."""
    control_answers().clear()


def question_key(
    question: Callable[..., Any], reach: Reach, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Hashable:
    """Return a cache key of a query with its arguments and reach, which must be hashable."""
    return (question.__module__, question.__qualname__, reach, arguments, tuple(sorted(options.items())))
