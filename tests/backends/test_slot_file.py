"""A value replaced in place: the newest sound one is read, whatever a write left behind."""

import builtins
import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.segment_log.slot_file import SLOT_BYTES, SlotFile, read_slots

MAX = SlotFile.MAX_BYTES


def reopened(path: Path) -> bytes | None:
    file = SlotFile(path)
    file.close()
    return file.value


def test_there_is_no_value_before_the_first_write(tmp_path: Path) -> None:
    assert reopened(tmp_path / "slots") is None


def test_a_value_fits_up_to_its_bound_and_not_beyond(tmp_path: Path) -> None:
    file = SlotFile(tmp_path / "slots")
    for size in (0, MAX - 1, MAX):
        file.write(b"x" * size, sync=True)
        assert file.value == reopened(tmp_path / "slots") == b"x" * size
    with pytest.raises(ValueError, match=f"{MAX + 1} bytes"):
        file.write(b"x" * (MAX + 1))
    assert file.value == b"x" * MAX
    file.close()
    file.close()


def test_the_file_has_its_blocks_from_the_beginning_and_keeps_its_size(tmp_path: Path) -> None:
    file = SlotFile(tmp_path / "slots")
    before = os.stat(tmp_path / "slots")
    assert before.st_size == 4 * SLOT_BYTES and before.st_blocks * 512 >= 4 * SLOT_BYTES
    for _ in range(5):
        file.write(b"x" * MAX)
    assert os.stat(tmp_path / "slots").st_size == before.st_size
    file.close()


@pytest.mark.parametrize("left", [b"", b"\xff" * 20, b"\xff" * 3 * SLOT_BYTES, bytes(10)])
def test_a_damaged_file_has_no_value_and_takes_one(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "slots").write_bytes(left)
    file = SlotFile(tmp_path / "slots")
    assert file.value is None
    file.write(b"new")
    file.close()
    assert reopened(tmp_path / "slots") == b"new"


def test_a_refused_write_keeps_the_value_and_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SlotFile(tmp_path / "slots")
    file.write(b"first")
    file.write(b"second")
    really_write = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, block, offset: really_write(descriptor, block[:18], offset))
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                file.write(b"third")
    assert file.value == reopened(tmp_path / "slots") == b"second"
    file.write(b"fourth")
    assert file.value == reopened(tmp_path / "slots") == b"fourth"
    file.close()


def test_a_write_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SlotFile(tmp_path / "slots")

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        for module, name in ((os, "open"), (builtins, "open"), (io, "open"), (os, "replace")):
            patch.setattr(module, name, refuse)
        file.write(b"kept")
    file.close()
    assert reopened(tmp_path / "slots") == b"kept"
    assert [path.name for path in tmp_path.iterdir()] == ["slots"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    writes=st.lists(st.binary(max_size=60), min_size=1, max_size=6),
    torn=st.binary(max_size=200),
    cut=st.integers(0, 216),
    noise=st.none() | st.binary(min_size=1, max_size=40),
    is_reopened=st.booleans(),
)
def test_a_torn_write_leaves_the_value_before_it_or_the_whole_new_one(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[bytes],
    torn: bytes,
    cut: int,
    noise: bytes | None,
    is_reopened: bool,
) -> None:
    path = tmp_path_factory.mktemp("slots") / "slots"
    file = SlotFile(path)
    for value in writes:
        file.write(value)
    if is_reopened:
        file.close()
        file = SlotFile(path)
    before = path.read_bytes()
    file.write(torn)
    file.close()
    after = path.read_bytes()
    changed = next(n for n in range(len(after)) if before[n] != after[n]) // SLOT_BYTES * SLOT_BYTES
    left = bytearray(before)  # the disk has the new slot's first bytes, perhaps then something else
    left[changed : changed + cut] = after[changed : changed + cut]
    if noise is not None:
        left[changed + cut : changed + cut + len(noise)] = noise
    path.write_bytes(left)
    survivor = reopened(path)
    whole = left[changed : changed + SLOT_BYTES][: 16 + len(torn)] == after[changed : changed + 16 + len(torn)]
    assert survivor == (torn if whole else writes[-1])
    again = SlotFile(path)
    again.write(b"next")
    again.close()
    assert reopened(path) == b"next"


@settings(max_examples=100, deadline=None)
@given(
    writes=st.lists(st.binary(max_size=60), min_size=1, max_size=6),
    sector=st.integers(0, 3),
    damage=st.none() | st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES),
)
def test_no_damaged_sector_brings_an_older_value_back(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], sector: int, damage: bytes | None
) -> None:
    path = tmp_path_factory.mktemp("slots") / "slots"
    file = SlotFile(path)
    for value in writes:
        file.write(value)
    file.close()
    content = bytearray(path.read_bytes())
    content[sector * SLOT_BYTES : (sector + 1) * SLOT_BYTES] = damage or bytes(SLOT_BYTES)
    path.write_bytes(content)
    assert reopened(path) == read_slots(path) == writes[-1]


def test_a_file_of_the_release_before_is_read_and_used_on_a_full_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slots"
    file = SlotFile(path)
    file.write(b"old")
    file.close()
    os.truncate(path, 2 * SLOT_BYTES)
    really_write = os.pwrite

    def full(descriptor: int, block: bytes, offset: int) -> int:
        if offset >= 2 * SLOT_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_write(descriptor, block, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        file = SlotFile(path)
        assert file.value == b"old"
        file.write(b"new")
        file.close()
    assert reopened(path) == b"new"
    assert path.stat().st_size == 4 * SLOT_BYTES
