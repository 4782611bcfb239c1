"""Retention: whole finished segments go, a signed stub stands for them, and the rest still verifies."""

import pytest

from backends.audit.entries import KIND_CONTROL, KIND_REQUEST, ControlFacts
from backends.audit.exporting import export_chain
from backends.audit.places import STUB, DirectoryPlace, segment_name, segment_names
from backends.audit.retention import cut_before
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.verification import verify_chain
from contracts.errors import ConfigurationError
from tests.backends.audit.conftest import Opened, StillClock, fill, request_facts


@pytest.mark.parametrize(("later_ns", "cut"), [(0, 0), (1, 1)])
def test_only_segments_that_ended_before_are_cut(
    opened: Opened, signer: AuditSigner, keys: AuditKeys, clock: StillClock, later_ns: int, cut: int
) -> None:
    chain = opened()
    fill(chain, 3)
    chain.rotate()
    ended = clock.now_ns
    clock.advance(60)
    fill(chain, 2)
    chain.rotate()
    names = segment_names(chain.directory)
    assert cut_before(chain.directory, ended + later_ns, signer, clock.now_ns) == names[:cut]
    report = verify_chain(DirectoryPlace(chain.directory), keys)
    assert report.fault is None and report.first == (6 if cut else 1)
    chain.close()


def test_a_chain_goes_on_behind_what_was_cut_and_can_be_cut_again(
    opened: Opened, signer: AuditSigner, keys: AuditKeys, clock: StillClock
) -> None:
    chain = opened()
    for _ in range(2):
        fill(chain, 3)
        chain.rotate()
        clock.advance(1)
        cut_before(chain.directory, clock.now_ns, signer, clock.now_ns)
    chain.close()
    again = opened()
    fill(again, 2)
    again.close()
    report = verify_chain(DirectoryPlace(chain.directory), keys)
    assert report.fault is None and again.chain == chain.chain and report.last == again.seq
    assert any("2 segments before entry" in note for note in report.notes)


def test_a_segment_put_before_a_cut_is_not_exported(
    opened: Opened, signer: AuditSigner, keys: AuditKeys, clock: StillClock
) -> None:
    chain = opened()
    for _ in range(2):
        fill(chain, 3)
        chain.rotate()
        clock.advance(1)
    cut_before(chain.directory, clock.now_ns, signer, clock.now_ns)
    chain.close()
    place = DirectoryPlace(chain.directory)
    sound = list(export_chain(place, 0, 2**63))
    (chain.directory / segment_name(1)).write_bytes(b"0" * 64 + b' {"at_ns":1,"tenant":"rival"}\n')
    torn = chain.directory / segment_names(chain.directory)[-1]
    assert verify_chain(place, keys).fault is None
    assert list(export_chain(place, 0, 2**63)) == sound
    torn.write_bytes(torn.read_bytes() + b"0" * 64 + b' {"at_ns":1,"tenant":"rival"}')
    assert list(export_chain(place, 0, 2**63)) == sound


def test_a_stub_that_was_changed_or_is_anothers_is_found(
    opened: Opened, signer: AuditSigner, keys: AuditKeys, clock: StillClock
) -> None:
    chain = opened()
    fill(chain, 3)
    chain.rotate()
    fill(chain, 3)
    chain.rotate()
    cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns)
    chain.close()
    stub = chain.directory / STUB
    stub.write_bytes(stub.read_bytes().replace(b'"segments":2', b'"segments":1'))
    fault = verify_chain(DirectoryPlace(chain.directory), keys).fault
    assert fault is not None and "stub" in fault.what
    stub.unlink()
    assert verify_chain(DirectoryPlace(chain.directory), keys).fault is not None


def test_nothing_is_cut_of_a_chain_that_does_not_verify(opened: Opened, signer: AuditSigner, clock: StillClock) -> None:
    chain = opened()
    chain.append(KIND_REQUEST, request_facts())
    chain.rotate()
    chain.append(KIND_REQUEST, request_facts())
    chain.close()
    first = chain.directory / segment_names(chain.directory)[0]
    first.chmod(0o600)
    first.write_bytes(first.read_bytes().replace(b"acme", b"evil"))
    with pytest.raises(ConfigurationError, match="does not verify"):
        cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns)
    assert first.exists()


def test_what_last_vouches_for_the_control_database_is_kept(
    opened: Opened, signer: AuditSigner, keys: AuditKeys, clock: StillClock
) -> None:
    chain = opened()
    for entry in (1, 2):
        chain.append(KIND_CONTROL, ControlFacts(clock.now_ns, entry, f"{entry:064}"))
        chain.rotate()
    for _ in range(2):
        fill(chain, 1)
        chain.rotate()
    names = segment_names(chain.directory)
    assert cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns) == names[:1]
    assert verify_chain(DirectoryPlace(chain.directory), keys).witnessed == {2: f"{2:064}"}
    assert cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns) == []
    chain.append(KIND_CONTROL, ControlFacts(clock.now_ns, 3, f"{3:064}"))
    assert cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns) == names[1:4]
    chain.close()
