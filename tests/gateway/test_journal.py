"""The gateway's journal: bounded, refusing or dropping, and alive after the process is not."""

import pytest

from contracts.errors import ConfigurationError
from contracts.recording.records import RequestRecord, decode_record, encode_record
from gateway.records.journal import Journal, unpack_entry

MEBIBYTE = 1 << 20


@pytest.fixture
def new_journal(tmp_path):
    opened = []

    def make(**fields):
        opened.append(Journal(tmp_path / "journal", **{"max_bytes": MEBIBYTE, **fields}))
        return opened[-1]

    yield make
    for journal in opened:
        journal.close()


def read_all(journal):
    return [unpack_entry(entry) for entry in journal.read(journal.cursor, max_entries=10**6, max_bytes=1 << 40)]


def test_a_record_survives_the_process_with_its_time(new_journal):
    record = RequestRecord(request_id=b"r" * 16, started_at_ns=1_700_000_000_123_456_789, duration_ns=5)
    journal = new_journal()
    assert journal.append(record.started_at_ns, encode_record(record))
    journal.close()
    [(at, packed)] = read_all(new_journal())
    assert at == record.started_at_ns and decode_record(packed) == record


def test_admission_stops_exactly_at_the_bound(new_journal):
    journal = new_journal()
    journal.append(1, b"x" * 1000)
    left = MEBIBYTE - journal.pending_bytes
    assert journal.has_room(left) and not journal.has_room(left + 1)
    assert not journal.is_over_bound
    journal.append(1, b"x" * (left - 40 - 1))  # 32 bytes of header and 8 of time an entry
    assert journal.pending_bytes == MEBIBYTE - 1 and not journal.is_over_bound
    journal.release(journal.end)
    journal.append(1, b"x" * (MEBIBYTE - 40))
    assert journal.pending_bytes == MEBIBYTE and journal.is_over_bound and journal.has_room(0)


def test_what_was_admitted_can_be_written_above_the_bound(new_journal):
    journal = new_journal()
    journal.append(1, b"x" * MEBIBYTE)
    assert not journal.has_room(0)
    assert journal.append(1, b"y" * (MEBIBYTE // 4))
    assert len(read_all(journal)) == 2


def test_what_does_not_fit_at_all_is_counted_and_stops_admission_until_there_is_room(new_journal):
    journal = new_journal()
    assert not journal.append(1, b"x" * (2 * MEBIBYTE))
    assert journal.dropped_records == 1 and journal.is_broken and not journal.has_room(0)
    assert journal.append(1, b"x")
    assert not journal.is_broken and journal.has_room(0)


def test_in_drop_mode_there_is_always_room(new_journal):
    journal = new_journal(when_full="drop")
    assert not journal.append(1, b"x" * (2 * MEBIBYTE))
    assert journal.has_room(10**12) and journal.dropped_records == 1


def test_a_second_process_is_refused_with_one_line(new_journal):
    new_journal()
    with pytest.raises(ConfigurationError, match="in use by another process") as refused:
        new_journal()
    assert "\n" not in refused.value.message
