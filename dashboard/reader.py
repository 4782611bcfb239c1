"""The dashboard's way to the store: clients lent to one page run at a time, and answers kept for a moment.

Answers are kept for a second: twenty viewers of one page cost the store one read, and a new request still stands
on the page at its next refresh.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import Final

import streamlit as st

from analytics.distinct import Kind, Seen, distinct
from analytics.overview import Overview, overview
from analytics.scope import Scope
from analytics.series import Dimension, Series, series
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from dashboard.settings import DashboardSettings

ANSWER_SECONDS: Final = 1
CHOICE_SECONDS: Final = 5
MAX_ANSWERS: Final = 200
PATIENCE_SECONDS: Final = 15  # then the page says that the store does not answer, instead of staying blank


class Readers:
    """Store clients, each lent to one thread at a time. They connect when used, and again after a failure."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._idle: LifoQueue[StoreClient] = LifoQueue()

    @contextmanager
    def borrow(self) -> Iterator[StoreClient]:
        """Lend a client."""
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = StoreClient(self._address, answer_seconds=PATIENCE_SECONDS)
        try:
            yield client
        finally:
            self._idle.put(client)


@st.cache_resource(show_spinner=False)
def settings() -> DashboardSettings:
    """Give this process's settings."""
    return DashboardSettings()


@st.cache_resource(show_spinner=False)
def readers() -> Readers:
    """Give this process's store clients. Raises ConfigurationError where its address is unusable."""
    return Readers(settings().store_address())


def _scope_key(scope: Scope) -> tuple[object, ...]:
    """Two scopes with the same covered period have the same answer, though one ends a second later."""
    return (scope.covered.start, scope.covered.end, scope.grain, scope.step_seconds, scope.tenant, scope.model)


@st.cache_data(ttl=ANSWER_SECONDS, max_entries=MAX_ANSWERS, show_spinner=False, hash_funcs={Scope: _scope_key})
def read_overview(scope: Scope) -> Overview:
    """Answer `analytics.overview`. Raises StoreUnavailable."""
    with readers().borrow() as store:
        return overview(store, scope)


@st.cache_data(ttl=ANSWER_SECONDS, max_entries=MAX_ANSWERS, show_spinner=False, hash_funcs={Scope: _scope_key})
def read_series(scope: Scope, by: Dimension) -> Series:
    """Answer `analytics.series`. Raises StoreUnavailable."""
    with readers().borrow() as store:
        return series(store, scope, by)


@st.cache_data(ttl=CHOICE_SECONDS, max_entries=MAX_ANSWERS, show_spinner=False)
def read_choices(kind: Kind, tenant: str | None = None) -> tuple[Seen, ...]:
    """Answer `analytics.distinct`. Raises StoreUnavailable."""
    with readers().borrow() as store:
        return distinct(store, kind, tenant)
