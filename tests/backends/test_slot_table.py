"""Slots in a mapped file: what was written stands after kill -9, and only of the same boot."""

import os
import signal

import pytest

from backends.segment_log import slot_table
from backends.segment_log.slot_table import NO_SLOT, SLOT_BYTES, SlotTable


def put(table: SlotTable, value: bytes, amount: int | None = None) -> int:
    slot = table.take()
    table.put(slot, amount, value)
    return slot


def in_a_killed_process(path, write) -> None:
    child = os.fork()
    if not child:
        write(SlotTable(path))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def values(table: SlotTable) -> dict[bytes, tuple[int | None, int]]:
    return {kept.value: (kept.amount, kept.count) for kept in table.found}


def test_values_and_numbers_outlive_a_killed_process(tmp_path):
    def write(table):
        put(table, b"none")
        second = put(table, b"zero", 0)
        table.note(second, 0, 7)
        table.note(put(table, b"some", 5), 2**63, 2**40)
        table.clear(put(table, b"cleared", 1))
        table.note_alive(123)

    in_a_killed_process(tmp_path / "slots", write)
    table = SlotTable(tmp_path / "slots")
    assert values(table) == {b"none": (None, 0), b"zero": (0, 7), b"some": (2**63, 2**40)}
    assert (table.used, table.last_alive_ns) == (3, 123)
    for kept in table.found:
        table.clear(kept.slot)
    table.close()
    again = SlotTable(tmp_path / "slots")
    assert (again.found, again.used) == ([], 0)
    again.close()


@pytest.mark.interpreted
@pytest.mark.parametrize("boot", [b"another-boot-another-boot-another-boo", b""])
def test_values_of_another_boot_are_of_unknown_age_and_dropped(tmp_path, monkeypatch, boot):
    table = SlotTable(tmp_path / "slots")
    put(table, b"old")
    table.close()
    (tmp_path / "boot").write_bytes(boot)
    monkeypatch.setattr(slot_table, "_BOOT_ID", tmp_path / ("boot" if boot else "absent"))
    for _ in range(2):
        table = SlotTable(tmp_path / "slots")
        assert (table.found, table.used) == ([], 0)
        table.close()


def test_it_grows_and_reuses_what_was_cleared(tmp_path):
    table = SlotTable(tmp_path / "slots")
    slots = [put(table, b"%d" % number) for number in range(100)]
    assert len(set(slots)) == table.used == 100
    size = (tmp_path / "slots").stat().st_size
    for slot in slots:
        table.clear(slot)
    for number in range(100):
        put(table, b"%d" % number)
    assert (tmp_path / "slots").stat().st_size == size
    table.close()
    found = SlotTable(tmp_path / "slots")
    assert sorted(values(found)) == sorted(b"%d" % number for number in range(100))
    found.close()


def test_a_disk_without_room_gives_no_slot_and_leaves_what_is_there(tmp_path, monkeypatch):
    table = SlotTable(tmp_path / "slots")
    real, was = os.pwrite, (tmp_path / "slots").stat().st_size

    def full(descriptor, data, offset):
        if offset > was:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:SLOT_BYTES], offset)

    monkeypatch.setattr(os, "pwrite", full)
    slots = []
    while (slot := table.take()) != NO_SLOT:
        slots.append(slot)
    assert len(slots) == was // SLOT_BYTES - 1
    assert (tmp_path / "slots").stat().st_size == was
    table.put(slots[0], None, b"yes")
    table.close()
    assert values(SlotTable(tmp_path / "slots")) == {b"yes": (None, 0)}


def test_all_blocks_of_the_file_are_on_disk(tmp_path):
    SlotTable(tmp_path / "slots").close()
    found = (tmp_path / "slots").stat()
    assert found.st_blocks * 512 >= found.st_size


@pytest.mark.parametrize("damage", [bytes(4096), os.urandom(4096)])
def test_a_damaged_sector_costs_the_values_in_it_and_they_are_counted(tmp_path, damage):
    def write(table):
        for number in range(40):
            put(table, b"%d" % number * 3000, number)
        table.clear(5)
        table.note_alive(77)

    in_a_killed_process(tmp_path / "slots", write)
    whole = (tmp_path / "slots").read_bytes()
    expected = {b"%d" % number * 3000: (number, 0) for number in range(40) if number != 4}
    for sector in range(len(whole) // 4096):
        path = tmp_path / f"slots{sector}"
        path.write_bytes(whole[: sector * 4096] + damage + whole[(sector + 1) * 4096 :])
        slot, part = divmod(sector, 4)
        is_lost = slot not in (0, 5) and slot <= 40 and part * 4096 < 32 + len(b"%d" % (slot - 1)) * 3000
        left = {value: kept for value, kept in expected.items() if not is_lost or kept[0] != slot - 1}
        table = SlotTable(path)
        assert values(table) == left, sector
        assert (table.damaged, table.last_alive_ns) == (int(is_lost), 77), sector
        assert table.used == len(left)
        table.close()
        path.unlink()


def test_a_table_as_releases_before_wrote_it_is_read(tmp_path):
    in_a_killed_process(tmp_path / "slots", lambda table: [put(table, b"one", 1), put(table, b"two")])
    content = bytearray((tmp_path / "slots").read_bytes())
    content[4096:16384] = bytes(12288)  # no marks, no copy of the head
    for slot in (1, 2):
        content[slot * SLOT_BYTES + 24 : slot * SLOT_BYTES + 32] = bytes(8)  # no checksum
    (tmp_path / "slots").write_bytes(content)
    table = SlotTable(tmp_path / "slots")
    assert values(table) == {b"one": (1, 0), b"two": (None, 0)} and not table.damaged
    table.close()


def test_what_a_release_before_cleared_is_not_taken_for_damage(tmp_path):
    def write(table):
        put(table, b"one")
        table.note_alive(5)

    in_a_killed_process(tmp_path / "slots", write)
    content = bytearray((tmp_path / "slots").read_bytes())
    content[SLOT_BYTES : SLOT_BYTES + 8] = bytes(8)
    content[8:16] = (9).to_bytes(8, "little")  # it keeps neither marks nor the head's copy
    (tmp_path / "slots").write_bytes(content)
    table = SlotTable(tmp_path / "slots")
    assert (table.found, table.damaged, table.last_alive_ns) == ([], 0, 9)
    table.close()
