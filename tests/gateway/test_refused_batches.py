"""A collector that refuses a batch for what is in it: the record at fault is set aside, the others arrive once."""

import pytest

from backends.segment_log.segments import SegmentLog
from backends.telemetry.otlp import parse_export_request
from gateway.records import shipper as shipping
from gateway.records.journal import unpack_entry
from tests.gateway.journal_road import OK, number_of, refusal, road

__all__ = ["road"]  # fixtures


def refuses(road, *poison: int, status: int = 400):
    """Let the collector refuse every batch that holds one of these records, and take the others."""

    def answer(request):
        numbers = {number_of(packed) for _, _, packed in parse_export_request(request.body).records}
        return refusal(status) if numbers & set(poison) else OK

    road.collector.answering(answer)


async def ship_until(road, shipper, condition, tries=200):
    for _ in range(tries):
        if condition():
            return
        await shipper._ship_all()
    raise AssertionError("never came about")


def accepted(road, *poison: int) -> list[int]:
    """The records of batches that were taken, each id counted once."""
    seen, found = set(), []
    for batch in road.batches:
        numbers = [number_of(packed) for _, _, packed in batch.records]
        if batch.batch_id not in seen and not set(numbers) & set(poison):
            seen.add(batch.batch_id)
            found += numbers
    return found


def letters(road) -> list[int]:
    log = SegmentLog(road.directory / "dead-letters", max_bytes=1 << 30)
    entries = log.read(log.cursor, max_entries=1000, max_bytes=1 << 30)
    log.close()
    return [number_of(unpack_entry(entry)[1]) for entry in entries]


@pytest.mark.parametrize("status", [400, 413, 415])
@pytest.mark.parametrize("poison", [(1,), (7,), (20,), (3, 4), tuple(range(1, 21))], ids=str)
async def test_a_record_nobody_takes_is_set_aside_and_all_others_arrive_once_in_order(road, status, poison):
    road.write(20)
    refuses(road, *poison, status=status)
    shipper = road.shipper()
    await ship_until(road, shipper, lambda: road.journal.pending_bytes == 0)
    assert accepted(road, *poison) == [number for number in range(1, 21) if number not in poison]
    assert letters(road) == list(poison)
    assert shipper.dead_letters.records == len(poison) and shipper.dead_letters.bytes > 0
    road.write(1)
    assert await shipper._ship_all()
    assert accepted(road, *poison)[-1] == 21


async def test_a_refusal_is_believed_after_three_alike_and_not_before(road):
    road.write(2)
    shipper = road.shipper()
    for status in (400, 400, 413, 400, 400):
        road.collector.then(refusal(status))
        assert not await shipper._ship_all()
    assert len({request.body for request in road.collector.requests}) == 1
    road.collector.then(refusal(400))
    assert await shipper._ship_all()  # the third in a row: in halves, which are taken
    assert [len(batch.records) for batch in road.batches[-2:]] == [1, 1]
    assert len({batch.batch_id for batch in road.batches}) == 3
    assert shipper.dead_letters.records == 0


@pytest.mark.parametrize("status", [401, 404, 408, 429, 500, 503])
async def test_a_refusal_that_may_pass_is_waited_out(road, status):
    road.write(2)
    shipper = road.shipper()
    for _ in range(20):
        road.collector.then(refusal(status))
        assert not await shipper._ship_all()
    assert await shipper._ship_all()
    assert len({request.body for request in road.collector.requests}) == 1


async def test_parts_of_a_refused_batch_keep_their_ids_over_restarts(road):
    road.write(8)
    refuses(road, 6)
    shipper = road.shipper()
    while road.journal.pending_bytes:
        await shipper._ship_all()
        shipper = road.restart()
        for _ in range(2):  # a refusal is counted by one process
            await shipper._ship_all()
    assert accepted(road, 6) == [1, 2, 3, 4, 5, 7, 8]
    ids: dict[bytes, str] = {}
    for batch in road.batches:
        packed = b"".join(body for _, _, body in batch.records)
        assert ids.setdefault(packed, batch.batch_id) == batch.batch_id
    assert letters(road) == [6]


async def test_what_was_set_aside_is_shown_also_after_a_restart(road):
    road.write(1)
    refuses(road, 1)
    shipper = road.shipper()
    await ship_until(road, shipper, lambda: road.journal.pending_bytes == 0)
    again = road.restart()
    assert (again.dead_letters.records, again.dead_letters.bytes) == (0, shipper.dead_letters.bytes)


async def test_without_room_for_dead_letters_records_stay_in_the_journal(road, monkeypatch):
    monkeypatch.setattr(shipping, "_MAX_DEAD_LETTER_BYTES", 10)
    road.write(1)
    refuses(road, 1)
    shipper = road.shipper()
    for _ in range(6):
        assert not await shipper._ship_all()
    assert road.journal.pending_bytes > 0 and shipper.dead_letters.records == 0
