"""The dashboard's data sources: pooled store clients, control database and control plane, with caches for viewers."""

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

from analytics.access_scope import EVERYTHING, AccessScope, BoundStore
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

PATIENCE_SECONDS: Final = 15  # after that the page reports that the store does not answer, instead of staying blank
CONTROL_ANSWER_SECONDS: Final = 5
_MAX_IDLE: Final = 64
_THREADS_AHEAD: Final = 4
_LACK_SECONDS: Final = 60.0  # after that a refused store user is tried again: the refusal may have been temporary
_PLAIN_READER: Final = "reader"  # the store user without row policies; users with row policies are optional

Answer = TypeVar("Answer")


class Readers:
    """A pool of store clients that connect at first use. Each is restricted to one `AccessScope` and used by one thread
    at a time.

    For restricted viewers the store user with row policies is used, if the store has it.
    """

    def __init__(self, address: StoreAddress, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._lock = Lock()
        self._users: set[str] = set()
        self._lacking: dict[str, float] = {}  # until when a store user is assumed not to exist
        self._idle: dict[AccessScope, LifoQueue[StoreClient]] = {}

    @contextmanager
    def borrow(self, access: AccessScope = EVERYTHING) -> Iterator[StoreClient]:
        """Provide a client that is restricted to `access`, for a `with` block."""
        with self._lock:
            idle = self._idle.setdefault(access, LifoQueue(_MAX_IDLE))
        try:
            client = idle.get_nowait()
        except Empty:
            client = self._open(access)
        try:
            yield client
        finally:
            # A client without row policies is not pooled: the next one may have them.
            is_makeshift = access.is_bound and client.address.user == _PLAIN_READER
            if is_makeshift or idle.full():
                client.close()
            else:
                idle.put(client)

    def _open(self, access: AccessScope) -> StoreClient:
        if not access.is_bound:
            return StoreClient(self._address, answer_seconds=PATIENCE_SECONDS)
        user = TENANT_READER if access.team is None else TEAM_READER
        if self._knows(user):
            policed = replace(self._address, user=user)
            return BoundStore(policed, access, is_policed=True, answer_seconds=PATIENCE_SECONDS)
        return BoundStore(self._address, access, answer_seconds=PATIENCE_SECONDS)

    def _knows(self, user: str) -> bool:
        """Return whether the store has this user. The embedded store does; a server does if it uses our users.xml."""
        if user in self._users:
            return True
        if self._address.user != _PLAIN_READER:
            return False  # an operator's own user, whose password we do not have
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
    """Return the dashboard's settings, read once."""
    return DashboardSettings()


@st.cache_resource(show_spinner=False)
def secrets() -> SecretFiles:
    """Return this installation's secrets; a dashboard on another machine has none."""
    return SecretFiles(settings().data / "secrets")


@st.cache_resource(show_spinner=False)
def readers() -> Readers:
    """Return the pool of store clients. Raises ConfigurationError if the store's URL is invalid."""
    return Readers(settings().store_address())


@st.cache_resource(show_spinner=False)
def control_database() -> ControlDatabase:
    """Return the control database, which is only read. Raises ConfigurationError if its URL is invalid."""
    return ControlDatabase(settings().database_address)


@st.cache_resource(show_spinner=False)
def control_connections() -> httpx.Client:
    """Return the HTTP client for the control plane."""
    return open_client(settings().control_plane_url)


@st.cache_resource(show_spinner=False)
def answers() -> Answers:
    """Return the cache of store results."""
    return Answers()


@st.cache_resource(show_spinner=False)
def control_answers() -> Answers:
    """Return the cache of control database and control plane results."""
    return Answers()


def ask_store(
    question: Callable[..., Answer], access: AccessScope, seconds: float, *arguments: Any, **options: Any
) -> Answer:
    """Return `question(store, *arguments, **options)` within `access`, cached for `seconds`. Raises its errors."""

    def ask() -> Answer:
        with readers().borrow(access) as store:
            return question(store, *arguments, **options)

    return answers().get(question_key(question, access, arguments, options), seconds, ask)


@st.cache_resource(show_spinner=False)
def _threads_ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_AHEAD, thread_name_prefix="ahead")


def ask_ahead(
    question: Callable[..., Any], access: AccessScope, seconds: float, *arguments: Any, **options: Any
) -> None:
    """Start a query in the background for a later `ask_store` call, which then gets its result or error."""
    _threads_ahead().submit(ask_store, question, access, seconds, *arguments, **options)


def ask_database(question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
    """Return `question(session, *arguments, **options)` of the control database, cached for five seconds."""

    def ask() -> Answer:
        with control_database().session() as session:
            return question(session, *arguments, **options)

    return control_answers().get(question_key(question, EVERYTHING, arguments, options), CONTROL_ANSWER_SECONDS, ask)


def forget_control_answers() -> None:
    """Clear the cache of control plane results, after a change."""
    control_answers().clear()


def question_key(
    question: Callable[..., Any], access: AccessScope, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Hashable:
    """Return a cache key of a query with its arguments and reach, which must be hashable."""
    return (question.__module__, question.__qualname__, access, arguments, tuple(sorted(options.items())))
