"""Copies of chains: each verifies as the chain did, also while it is written, and hides nothing that was wrong."""

from pathlib import Path

import pytest

from backends.audit.chain import AuditChain
from backends.audit.copying import copy_chains, restore_chains
from backends.audit.places import HEAD, DirectoryPlace, segment_names
from backends.audit.signing import AuditKeys
from backends.audit.verification import ChainReport, verify_chain
from tests.backends.audit.conftest import Opened, fill


def copied(chain: AuditChain, to: Path, keys: AuditKeys) -> ChainReport:
    assert copy_chains(chain.directory.parent, to) == [chain.directory.name]
    return verify_chain(DirectoryPlace(to / chain.directory.name), keys)


def test_a_copy_of_a_chain_that_is_written_verifies(opened: Opened, keys: AuditKeys, tmp_path: Path) -> None:
    chain = opened(tmp_path / "root" / "gateway")
    fill(chain, 3)
    chain.rotate()
    fill(chain, 2)
    report = copied(chain, tmp_path / "copy", keys)
    assert report.fault is None and (report.last, report.signed_upto) == (7, 5)
    chain.close()


def test_checkpoints_that_came_while_it_was_copied_are_its_head(
    opened: Opened, keys: AuditKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = opened(tmp_path / "root" / "gateway")
    fill(chain, 1)
    chain.checkpoint()
    segments = DirectoryPlace.segments

    def and_goes_on(place: DirectoryPlace) -> list[str]:
        if place.directory == chain.directory:
            for _ in range(3):
                fill(chain, 1)
                chain.checkpoint()
        return segments(place)

    monkeypatch.setattr(DirectoryPlace, "segments", and_goes_on)
    report = copied(chain, tmp_path / "copy", keys)
    assert report.fault is None and report.signed_upto == report.last
    chain.close()


def test_an_entry_that_is_half_written_is_left_out_and_a_torn_one_of_old_is_not(
    opened: Opened, keys: AuditKeys, tmp_path: Path
) -> None:
    chain = opened(tmp_path / "root" / "gateway")
    fill(chain, 2)
    with open(chain.directory / chain.segment, "ab") as file:
        file.write(b"ab" * 32 + b' {"prev":')
    report = copied(chain, tmp_path / "copy", keys)
    assert report.fault is None and report.last == 3
    chain.close()
    report = copied(chain, tmp_path / "another", keys)
    assert report.fault is not None and report.fault.entry == 4


def test_a_copy_does_not_mend_what_was_cut(opened: Opened, keys: AuditKeys, tmp_path: Path) -> None:
    chain = opened(tmp_path / "root" / "gateway")
    fill(chain, 2)
    chain.rotate()
    fill(chain, 2)
    chain.checkpoint()
    (chain.directory / chain.segment).write_bytes(b"")
    report = copied(chain, tmp_path / "copy", keys)
    assert report.fault is not None and "the end was cut" in report.fault.what
    chain.close()


def test_what_is_put_back_stands_beside_what_is_there(opened: Opened, keys: AuditKeys, tmp_path: Path) -> None:
    chain = opened(tmp_path / "root" / "gateway")
    fill(chain, 2)
    chain.close()
    copied(chain, tmp_path / "copy", keys)
    before = (chain.directory / HEAD).read_bytes()
    root = chain.directory.parent
    assert restore_chains(tmp_path / "copy", root, "now") == ["gateway.restored-now"]
    assert restore_chains(tmp_path / "copy", root, "now") == ["gateway.restored-now-1"]
    assert (chain.directory / HEAD).read_bytes() == before and segment_names(root / "gateway.restored-now")
    assert verify_chain(DirectoryPlace(root / "gateway.restored-now-1"), keys).fault is None
