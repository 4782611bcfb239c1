"""Each test of the dashboard begins with empty caches, and ends with no query still running."""

import functools
from collections.abc import Iterator

import pytest
import streamlit
from streamlit.components.v2 import manifest_scanner

from dashboard import reader
from dashboard.slow_answers import slow_answers


@pytest.fixture(scope="session", autouse=True)
def _installed_components() -> Iterator[None]:
    """Look once for Streamlit components among all installed packages, which `AppTest` does at each run: that took six
    sevenths of a page's CPU time.
    """
    with pytest.MonkeyPatch.context() as patch:
        found = functools.cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", found)
        yield


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    """End the background queries of a test's pages after it. One that ran on read the settings again when the next test
    had emptied the caches and not yet set its store's address: the next test's pages then asked the default address.
    """
    yield
    slow = slow_answers()
    for threads in (reader._threads_ahead(), slow._threads, slow._thread_beside):
        threads.shutdown(cancel_futures=True)
    streamlit.cache_data.clear()
    streamlit.cache_resource.clear()
