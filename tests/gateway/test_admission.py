"""What is admitted when: the cap on concurrent requests, and the journal's room."""

import asyncio

import pytest

from backends.segment_log.segment_file import SegmentFile
from contracts.access.identity import ANONYMOUS
from contracts.errors import JournalFull, Unavailable
from gateway.limits.admission import Admission
from gateway.records.journal import RECORD_ROOM_BYTES, Journal

MEBIBYTE = 1 << 20


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal", max_bytes=MEBIBYTE)
    yield journal
    journal.close()


def test_requests_are_admitted_below_and_at_the_cap_and_refused_above_it(journal):
    admission = Admission(journal, max_concurrent=3)
    tickets = [admission.admit(ANONYMOUS) for _ in range(3)]
    with pytest.raises(Unavailable) as refused:
        admission.admit(ANONYMOUS)
    assert (refused.value.error_code, refused.value.retry_after_seconds) == ("overloaded", 1.0)
    assert "3 concurrent" in refused.value.message
    admission.settle(tickets[0])
    admission.settle(tickets[0])  # a second time frees no second place
    admission.admit(ANONYMOUS)
    with pytest.raises(Unavailable):
        admission.admit(ANONYMOUS)


def test_no_more_is_admitted_than_the_journal_can_take(journal):
    admission = Admission(journal, max_concurrent=1000)
    room = MEBIBYTE // RECORD_ROOM_BYTES
    for _ in range(room):
        admission.admit(ANONYMOUS)
    with pytest.raises(JournalFull):
        admission.admit(ANONYMOUS)


async def test_the_cap_answers_503_and_admits_again_when_one_has_finished(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(first_ms=100)]))
    gateway = await start_gateway(config, max_concurrent=2)
    answers = await asyncio.gather(*(gateway.chat() for _ in range(3)))
    assert sorted(answer.status for answer in answers) == [200, 200, 503]
    [refused] = [answer for answer in answers if answer.status == 503]
    assert (refused.error["code"], refused.headers["retry-after"]) == ("overloaded", "1")
    assert (await gateway.chat()).status == 200
    outcomes = [record.outcome for record in gateway.requests()]
    assert outcomes.count("rejected") == 1 and outcomes.count("ok") == 3


def fill(gateway) -> None:
    journal = gateway.gateway.journal
    while journal.has_room(RECORD_ROOM_BYTES):
        journal.append(1, b"x" * 20_000)


async def test_a_full_journal_refuses_says_so_and_recovers_when_it_drains(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), journal_max_bytes=MEBIBYTE)
    assert (await gateway.chat()).status == 200
    fill(gateway)
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "journal_full", "5")
    journal = gateway.gateway.journal
    journal.append(1, b"x" * (MEBIBYTE - journal.pending_bytes))
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (ready.status, ready.json["problems"]) == (503, ["journal_full"])
    journal.release(journal.end)
    assert (await gateway.chat()).status == 200
    assert (await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")).status == 200


async def test_refusals_do_not_take_the_room_of_requests_that_were_admitted(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=1000, gap_ms=1)]))
    gateway = await start_gateway(config, journal_max_bytes=MEBIBYTE)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    journal = gateway.gateway.journal
    journal.append(1, b"x" * (MEBIBYTE - journal.pending_bytes))
    before = journal.pending_bytes
    retrying = await gateway.connect()
    for _ in range(200):
        await retrying.send(gateway.request())
        assert (await retrying.answer()).status == 503
    assert journal.pending_bytes == before
    assert gateway.gateway.recorder.unrecorded_rejections == 200
    client.close()
    while gateway.gateway.admission.in_flight:
        await asyncio.sleep(0.002)
    assert journal.pending_bytes > before and journal.dropped_records == 0


async def test_in_drop_mode_requests_are_served_and_lost_records_are_counted(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, journal_max_bytes=MEBIBYTE, journal_when_full="drop")
    journal = gateway.gateway.journal
    while journal.append(1, b"x" * 20_000):
        pass
    while journal.append(1, b"x"):
        pass
    dropped = journal.dropped_records
    for _ in range(3):
        assert (await gateway.chat()).status == 200
    assert journal.dropped_records == dropped + 3
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (ready.status, ready.json["dropped_records"]) == (200, dropped + 3)


@pytest.mark.interpreted
async def test_a_disk_that_fails_stops_admission_until_a_write_succeeds(gateway, monkeypatch):
    working = SegmentFile.write

    def failing(self, block):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SegmentFile, "write", failing)
    assert (await gateway.chat()).status == 200  # it was admitted before the disk failed; its loss is counted
    assert gateway.gateway.journal.dropped_records == 1
    refused = await gateway.chat()
    assert (refused.status, refused.error["code"]) == (503, "journal_full")
    monkeypatch.setattr(SegmentFile, "write", working)
    await gateway.chat()  # its own refusal is the write that succeeds
    assert (await gateway.chat()).status == 200
