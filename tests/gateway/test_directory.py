"""The snapshot in use while its source changes, fails and comes back; the clock is handed in."""

import asyncio
import dataclasses
import threading
import time

import pytest

from contracts.access.identity import Identity
from contracts.access.keys import digest_of
from contracts.errors import AuthenticationFailed, ControlUnavailable
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import EMPTY_SNAPSHOT, KeyEntry, Snapshot
from gateway.config import directory as module
from gateway.config.directory import Directory
from gateway.identity.authentication import Authenticator
from gateway.request.clock import Clock

KEY = "tk-" + "K" * 43
PEPPER = b"pepper"


class Source:
    """A control plane that can be changed, broken and mended."""

    def __init__(self) -> None:
        self.snapshot = EMPTY_SNAPSHOT
        self.fault: Exception | None = None
        self.is_quiet = False

    has_answered = False

    def may_have_changed(self) -> bool:
        return not self.is_quiet

    def poll(self, known_revision: int) -> Snapshot | None:
        if self.fault is not None:
            raise self.fault
        return self.snapshot if self.snapshot.revision != known_revision else None


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.clock = Clock(wall_ns=lambda: self.now_ns, monotonic_ns=lambda: self.now_ns)

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def changes():
    return []


@pytest.fixture
def directory(source, hands, changes):
    return Directory(source, EMPTY_SNAPSHOT, hands.clock, 60.0, lambda: changes.append(1))


def revision(number: int, **key: object) -> Snapshot:
    entry = KeyEntry(digest_of(KEY, PEPPER), Identity("acme"), **key)  # type: ignore[arg-type]
    return Snapshot(number, {entry.digest: entry}, {}, {}, PriceBook())


async def test_a_new_revision_is_swapped_in_once(directory, source, changes):
    await directory.refresh()
    assert directory.snapshot is EMPTY_SNAPSHOT and changes == []
    source.snapshot = revision(5)
    for _ in range(3):
        await directory.refresh()
    assert directory.snapshot is source.snapshot and changes == [1]


async def test_a_source_that_knows_of_nothing_new_is_not_polled_and_counts_as_there(directory, source, hands):
    source.snapshot, source.is_quiet, source.fault = revision(1), True, ControlUnavailable("away")
    hands.advance(61.0)
    await directory.refresh()
    assert directory.snapshot is EMPTY_SNAPSHOT and not directory.is_source_away
    source.is_quiet = False
    await directory.refresh()
    assert directory.is_source_away and not directory.is_too_old, "it was there a moment ago"
    source.fault = None
    await directory.refresh()
    assert directory.snapshot is source.snapshot and not directory.is_too_old


@pytest.mark.parametrize("fault", [ControlUnavailable("away"), KeyError("a bug in a poll")])
async def test_while_the_source_is_away_the_last_snapshot_serves_for_the_stated_time(directory, source, hands, fault):
    source.snapshot = revision(1)
    await directory.refresh()
    source.fault = fault
    for seconds, too_old in ((0, False), (59.999, False), (0.001, False), (0.001, True)):
        hands.advance(seconds)
        await directory.refresh()
        assert (directory.is_source_away, directory.is_too_old) == (True, too_old)
        assert directory.snapshot is source.snapshot
    source.fault = None
    await directory.refresh()
    assert (directory.is_source_away, directory.is_too_old) == (False, False)


async def test_a_misconfiguration_is_logged_once_and_its_mending_is_no_news(source, hands, caplog):
    def with_faults(number, *faults):
        return dataclasses.replace(revision(number), misconfigured=faults)

    directory = Directory(source, with_faults(1, "card a"), hands.clock, 60.0, lambda: None)
    for number, faults in enumerate([("card a",), ("card a", "card b"), ("card b",), (), ("card a",)], start=2):
        source.snapshot = with_faults(number, *faults)
        await directory.refresh()
    told = [record.reason for record in caplog.records if record.message == "misconfigured"]
    assert told == ["card a", "card b", "card a"]


async def test_keys_are_not_trusted_once_the_snapshot_is_too_old(directory, source, hands):
    authenticator = Authenticator(directory, PEPPER, b"salt", hands.clock)
    source.snapshot = revision(1)
    await directory.refresh()
    assert authenticator.authenticate(f"Bearer {KEY}", directory.snapshot).identity.tenant == "acme"
    source.fault = ControlUnavailable("away")
    await directory.refresh()
    hands.advance(60.001)
    with pytest.raises(ControlUnavailable):
        authenticator.authenticate(f"Bearer {KEY}", directory.snapshot)
    with pytest.raises(AuthenticationFailed):
        authenticator.authenticate("Bearer nonsense", directory.snapshot)


async def test_polling_survives_every_fault_and_sees_a_revocation_within_a_second(source):
    directory = Directory(source, EMPTY_SNAPSHOT, Clock(), 60.0, lambda: None)
    source.fault = RuntimeError("a bug")
    polling = asyncio.create_task(directory.run())
    while not directory.is_source_away:
        await asyncio.sleep(0.01)
    source.fault = None
    source.snapshot = revision(2, revoked_at_ns=1)
    async with asyncio.timeout(1.0):
        while directory.snapshot.revision != 2:
            await asyncio.sleep(0.01)
    with pytest.raises(AuthenticationFailed, match="revoked"):
        Authenticator(directory, PEPPER, b"salt", Clock()).authenticate(f"Bearer {KEY}", directory.snapshot)
    polling.cancel()


@pytest.mark.parametrize("field", ["expires_at_ns", "revoked_at_ns"])
def test_a_key_ends_at_its_very_moment(directory, hands, field):
    authenticator = Authenticator(directory, PEPPER, b"salt", hands.clock)
    snapshot = revision(1, **{field: 1_000_000_000})
    hands.advance(0.999_999_999)
    authenticator.authenticate(f"Bearer {KEY}", snapshot)
    hands.now_ns = 1_000_000_000
    with pytest.raises(AuthenticationFailed):
        authenticator.authenticate(f"Bearer {KEY}", snapshot)


def test_a_tenants_salt_is_its_own_and_stays_the_same(directory, hands):
    first = Authenticator(directory, PEPPER, b"salt", hands.clock)
    second = Authenticator(directory, PEPPER, b"salt", hands.clock)
    other = Authenticator(directory, PEPPER, b"another secret", hands.clock)
    assert first.cache_salt("acme") == first.cache_salt("acme") == second.cache_salt("acme")
    assert len({first.cache_salt("acme"), first.cache_salt("beta"), other.cache_salt("acme")}) == 3
    assert "acme" not in first.cache_salt("acme")


def test_the_clocks_of_a_gateway_are_the_systems():
    assert Clock().wall_ns is time.time_ns and Clock().monotonic_ns is time.monotonic_ns


async def test_a_fault_in_what_follows_a_change_does_not_end_the_polling(source, hands):
    def fault():
        raise ImportError("an adapter's library is missing")

    directory = Directory(source, EMPTY_SNAPSHOT, hands.clock, 60.0, fault)
    source.snapshot = revision(1)
    await directory.refresh()
    assert directory.snapshot.revision == 1
    await directory.refresh()
    assert not directory.is_source_away


async def test_a_source_that_hangs_is_away_and_the_same_poll_is_waited_for(directory, source, monkeypatch):
    monkeypatch.setattr(module, "_POLL_PART_SECONDS", 0.01)
    thawed, polls = threading.Event(), []
    told = source.poll

    def stuck(known_revision: int) -> Snapshot | None:
        polls.append(known_revision)
        thawed.wait(30)
        newer: Snapshot | None = told(known_revision)
        return newer

    source.poll = stuck
    source.snapshot = revision(5)
    await directory.refresh()
    assert directory.is_source_away
    await directory.refresh()
    assert directory.is_source_away and len(polls) == 1
    thawed.set()
    while directory.is_source_away:
        await directory.refresh()
    assert directory.snapshot.revision == 5 and len(polls) == 1


async def test_a_source_that_answers_and_reads_for_long_is_not_away(directory, source, monkeypatch):
    monkeypatch.setattr(module, "_POLL_PART_SECONDS", 0.01)
    source.has_answered = True
    told = source.poll

    def slow(known_revision: int) -> Snapshot | None:
        time.sleep(0.2)
        newer: Snapshot | None = told(known_revision)
        return newer

    source.poll = slow
    source.snapshot = revision(5)
    await directory.refresh()
    assert not directory.is_source_away and directory.snapshot.revision == 5
