"""Chains to write and to spoil, with a clock that only goes on when it is told to."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.audit.chain import AuditChain, ChainBounds
from backends.audit.entries import KIND_REQUEST, RequestFacts
from backends.audit.signing import AuditKeys, AuditSigner
from backends.secrets.secret_files import SecretFiles


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> AuditSigner:
    return AuditSigner.of(SecretFiles(tmp_path_factory.mktemp("secrets")))


@pytest.fixture(scope="session")
def keys(signer: AuditSigner) -> AuditKeys:
    return AuditKeys([signer.public])


class StillClock:
    """Nanoseconds since 1970, as long as nobody moves them."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


Opened = Callable[..., AuditChain]


@pytest.fixture
def opened(tmp_path: Path, signer: AuditSigner, clock: StillClock) -> Opened:
    """Open the chain in a directory, which is the test's own unless another is named."""

    def open_chain(directory: Path = tmp_path / "chain", **bounds: float) -> AuditChain:
        return AuditChain(directory, "test:1", signer, ChainBounds(**bounds), clock)  # type: ignore[arg-type]  # of both

    return open_chain


_numbers = itertools.count(1)


def request_facts(number: int = 0) -> RequestFacts:
    """Return what a request's entry says."""
    number = number or next(_numbers)
    return RequestFacts(
        at_ns=1_700_000_000_000_000_000 + number,
        request=f"{number:032x}",
        tenant="acme",
        status=200,
        outcome="ok",
        key="key_1",
        address="192.0.2.7",
        model="small",
        prompt_hash="ab" * 32,
    )


def fill(chain: AuditChain, entries: int) -> None:
    """Append requests."""
    for _ in range(entries):
        assert chain.append(KIND_REQUEST, request_facts())
