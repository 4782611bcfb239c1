"""A key that came before is recognised without its digest, and held to all that holds for it now."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.access.identity import Identity
from contracts.access.keys import digest_of, new_key
from contracts.errors import AuthenticationFailed, ControlUnavailable, PermissionDenied
from contracts.rules.limits import TenantSpec
from contracts.serving.configuration import EMPTY_SNAPSHOT, KeyEntry, Snapshot
from gateway.identity import authentication
from gateway.identity.authentication import Authenticator
from gateway.request.clock import Clock

PEPPER = b"p" * 32


@dataclass
class Desk:
    """An authenticator with a clock that is told, and what it goes by."""

    now_ns: int = 1_000
    is_too_old: bool = False
    snapshot: Snapshot = EMPTY_SNAPSHOT
    authenticator: Authenticator = field(init=False)

    def __post_init__(self) -> None:
        clock = Clock(wall_ns=lambda: self.now_ns, monotonic_ns=lambda: self.now_ns)
        directory: Any = self
        self.authenticator = Authenticator(directory, PEPPER, b"s" * 32, clock)

    def admit(self, *keys: str, **fields: Any) -> None:
        entries = {digest_of(key, PEPPER): entry(key, **fields) for key in keys}
        self.snapshot = replace(EMPTY_SNAPSHOT, revision=1, keys=entries)

    def recognise(self, key: str) -> KeyEntry | None:
        headers: Mapping[bytes, bytes] = {b"authorization": b"Bearer " + key.encode()}
        head = SimpleNamespace(authorization=headers[b"authorization"])
        exchange: Any = SimpleNamespace(
            head=head, headers=headers, header=lambda name: headers.get(name, b"").decode(), address="127.0.0.1"
        )
        return self.authenticator.recognise(exchange, self.snapshot)


def key_of(number: int) -> str:
    return new_key(number.to_bytes(32, "big"))


def entry(key: str, **fields: Any) -> KeyEntry:
    return KeyEntry(digest_of(key, PEPPER), Identity("acme", key_id=key[-4:]), **fields)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("name", ["expires_at_ns", "revoked_at_ns"])
def test_a_key_that_came_before_ends_at_its_moment(desk, name):
    desk.admit(key_of(1), **{name: 2_000})
    for desk.now_ns in (1_000, 1_999):
        assert desk.recognise(key_of(1)) is not None
    for desk.now_ns in (2_000, 2_001):
        with pytest.raises(AuthenticationFailed):
            desk.recognise(key_of(1))


def test_a_key_that_came_before_is_unknown_under_the_next_snapshot(desk):
    desk.admit(key_of(1), key_of(2))
    desk.recognise(key_of(1))
    desk.admit(key_of(2))
    with pytest.raises(AuthenticationFailed):
        desk.recognise(key_of(1))
    assert desk.recognise(key_of(2)) is not None


def test_a_key_that_came_before_has_its_tenant_asked(desk):
    desk.admit(key_of(1))
    desk.snapshot = replace(desk.snapshot, tenants={"acme": TenantSpec("acme")})
    desk.recognise(key_of(1))
    desk.snapshot.tenants["acme"] = TenantSpec("acme", is_active=False)
    with pytest.raises(PermissionDenied):
        desk.recognise(key_of(1))


def test_a_key_that_came_before_is_not_taken_on_trust_for_ever(desk):
    desk.admit(key_of(1))
    desk.recognise(key_of(1))
    desk.is_too_old = True
    with pytest.raises(ControlUnavailable):
        desk.recognise(key_of(1))


def test_a_bounded_number_of_keys_is_remembered_and_all_are_recognised(desk, monkeypatch):
    monkeypatch.setattr(authentication, "_MAX_RECENT", 3)
    keys = [key_of(number) for number in range(8)]
    desk.admit(*keys)
    for key in keys * 2:
        assert desk.recognise(key) == entry(key)
        assert len(desk.authenticator._recent) <= 3
