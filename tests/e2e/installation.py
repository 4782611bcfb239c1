"""A whole installation as a newcomer starts it: `tollkeeper init` on free ports and an empty data directory."""

import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import openai
import pytest

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from contracts.errors import StoreUnavailable
from tests.steady_time import poll_within

# What a key is answered that the gateway does not know (yet): the second one, once thirty polls within a minute came.
UNKNOWN_KEY = (openai.AuthenticationError, openai.RateLimitError)


@dataclass
class Installation:
    """A running `tollkeeper init`, which is `tollkeeper up` after its questions."""

    data: Path
    port_base: int

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.port_base}"

    @property
    def control_url(self) -> str:
        return f"http://127.0.0.1:{self.port_base + 1}"

    @property
    def analytics_url(self) -> str:
        return f"http://127.0.0.1:{self.port_base + 2}"

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.port_base + 3}"

    @property
    def store_url(self) -> str:
        return f"http://127.0.0.1:{self.port_base + 7}"

    @property
    def key(self) -> str:
        return self._secret("demo_key")

    @property
    def admin_token(self) -> str:
        return self._secret("admin_token")

    def _secret(self, name: str) -> str:
        secret = SecretFiles(self.data / "secrets").get(name)
        assert secret is not None, f"{name} was not made at first start"
        return secret

    def store(self) -> StoreClient:
        """A client that reads, as the dashboard does."""
        return StoreClient(StoreAddress(self.store_url, "tollkeeper", "reader", self._secret("store_reader")))

    def pid_of(self, name: str) -> int:
        return int((self.data / "run" / f"{name}.pid").read_text())

    def kill(self, name: str) -> int:
        """End a process as the kernel would, without warning. Gives the pid it had."""
        pid = self.pid_of(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def request(self, method: str, path: str, body: object = None) -> object:
        """Call the control plane as its administrator."""
        request = urllib.request.Request(
            self.control_url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.admin_token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def output(self) -> str:
        return (self.data.parent / "up.log").read_text()

    def after_setup(self) -> str:
        """Return what came after the file of `init` was applied, beyond `up`'s own example."""
        return self.output().partition("tollkeeper.yaml applied")[2]


Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], within_seconds: float, what: str) -> Found:
    """Poll until a condition gives something true, and return it; fail, saying what was waited for."""
    found: Found | None = None

    def is_found() -> bool:
        nonlocal found
        with contextlib.suppress(OSError, StoreUnavailable, urllib.error.URLError):
            found = condition()
        return bool(found)

    if not poll_within(is_found, within_seconds):
        pytest.fail(f"{what}: not within {within_seconds:g} s")
    assert found is not None
    return found
