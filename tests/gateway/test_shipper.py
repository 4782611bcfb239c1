"""The road from the journal to a collector that loses answers, refuses, dies and comes back."""

import asyncio
import json
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from backends.telemetry.otlp import parse_export_request
from contracts.recording.records import AttemptRecord, encode_record
from gateway.records import shipper as shipping
from gateway.records.shipper import Shipper
from tests.gateway.journal_road import OK, refusal, road

__all__ = ["road"]  # fixtures


@pytest.fixture
def in_background():
    tasks = []

    def begin(shipper: Shipper) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(shipper.run()))
        return tasks[-1]

    yield begin
    for task in tasks:
        task.cancel()


Begin = Callable[[Shipper], asyncio.Task[None]]


async def test_a_batch_says_who_sends_what_and_when(road):
    road.write(2)
    attempt = AttemptRecord(request_id=b"a" * 16, number=1, started_at_ns=7, duration_ns=1)
    road.journal.append(7, encode_record(attempt))
    assert await road.shipper()._ship_all()
    [request], [batch] = road.collector.requests, road.batches
    assert request.line == "POST /v1/logs HTTP/1.1"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert batch.service_name == "tollkeeper-gateway" and batch.batch_id
    assert [(name, at) for name, at, _ in batch.records] == [
        ("tollkeeper.request", 1000),
        ("tollkeeper.request", 2000),
        ("tollkeeper.attempt", 7),
    ]
    assert road.journal.pending_bytes == 0


async def test_order_is_kept_over_many_batches_with_ids_of_their_own(road):
    road.write(2 * shipping._MAX_BATCH_ENTRIES + 1)
    assert await road.shipper()._ship_all()
    assert road.numbers == list(range(1, road.made + 1))
    assert [len(batch.records) for batch in road.batches] == [500, 500, 1]
    assert len({batch.batch_id for batch in road.batches}) == 3


@pytest.mark.parametrize("loss", ["close", "reset"])
async def test_after_a_lost_answer_the_very_same_bytes_go_out_again(road, loss):
    road.write(3)
    road.collector.then(loss)
    shipper = road.shipper()
    assert not await shipper._ship_all()
    road.write(2)  # what came since belongs to the next batch
    assert await shipper._ship_all()
    first, again, following = road.collector.requests
    assert again.body == first.body
    assert road.batches[2].batch_id != road.batches[0].batch_id
    assert road.numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("answered", [True, False])
async def test_after_a_restart_the_very_same_bytes_go_out_again(road, answered):
    road.write(3)
    road.collector.then(*([refusal(503)] if answered else ["stall"]))
    shipping_once = asyncio.create_task(road.shipper()._ship_all())
    while not road.collector.requests:
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.02)
    shipping_once.cancel()
    await asyncio.gather(shipping_once, return_exceptions=True)
    road.write(2)
    again = road.restart()
    road.write(1)
    assert await again._ship_all()
    assert road.collector.requests[1].body == road.collector.requests[0].body
    assert road.numbers == [1, 2, 3, 4, 5, 6]


@pytest.mark.interpreted
async def test_a_batch_acknowledged_just_before_a_crash_is_not_sent_again(road):
    road.write(3)
    plan = road.directory / "batch.plan"
    shipper = road.shipper()
    kept = []
    release = road.journal.release

    def watched(upto):
        kept.append(plan.read_bytes())
        release(upto)

    road.journal.release = watched
    assert await shipper._ship_all()
    plan.write_bytes(kept[0])  # the crash came between the release and the removal
    again = road.restart()
    assert await again._ship_all()
    assert len(road.collector.requests) == 1


@pytest.mark.parametrize("plan", [b"", b"not json", b'{"batch_id": 5}'])
async def test_a_damaged_plan_holds_nothing_up(road, plan):
    road.write(3)
    (road.directory / "batch.plan").write_bytes(plan)
    assert await road.shipper()._ship_all()
    assert road.numbers == [1, 2, 3]


async def test_a_plan_of_another_journal_holds_nothing_up(road):
    road.write(3)
    plan = {"batch_id": "old", "start": [900, 0], "end": [900, 77]}
    (road.directory / "batch.plan").write_text(json.dumps(plan))
    assert await road.shipper()._ship_all()
    assert road.numbers == [1, 2, 3] and road.batches[0].batch_id != "old"


async def test_an_entry_that_is_no_record_keeps_no_other_from_arriving(road):
    road.write(1)
    road.journal.append(1, b"nonsense")
    road.write(1)
    shipper = road.shipper()
    assert await shipper._ship_all()
    assert road.numbers == [1, 2] and shipper.unreadable_records == 1


async def test_what_the_collector_rejects_is_counted_and_not_sent_again(road):
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 2
    answer.partial_success.error_message = "unknown version"
    body = answer.SerializeToString()
    road.collector.then(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    road.write(5)
    shipper = road.shipper()
    assert await shipper._ship_all()
    assert (shipper.shipped_records, shipper.rejected_records) == (3, 2)
    assert road.journal.pending_bytes == 0


async def test_an_answer_that_cannot_be_read_is_still_an_acknowledgement(road):
    road.collector.then(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\xff\xff\xff")
    road.write(1)
    assert await road.shipper()._ship_all()
    assert road.journal.pending_bytes == 0


@pytest.mark.parametrize("status", [400, 404, 413, 429, 500, 503])
async def test_a_refused_batch_stays_in_the_journal(road, status):
    road.collector.then(refusal(status))
    road.write(1)
    shipper = road.shipper()
    assert not await shipper._ship_all()
    assert road.journal.pending_bytes > 0
    assert await shipper._ship_all()
    assert road.numbers == [1]


async def test_it_backs_off_while_the_collector_is_away_and_catches_up(road, in_background, monkeypatch, eventually):
    pauses = []
    sleep = asyncio.sleep

    async def noted(seconds, result=None):
        pauses.append((asyncio.current_task(), seconds))
        await sleep(min(seconds, 0.002))

    monkeypatch.setattr("gateway.records.shipper.asyncio.sleep", noted)
    road.collector.always(refusal(503))
    road.write(3)
    shipper = road.shipper()
    shipping = in_background(shipper)
    await eventually(lambda: shipper.failures_in_a_row >= 9)
    waits = [seconds for task, seconds in pauses if task is shipping and seconds >= 0.1][:9]
    for failures, seconds in enumerate(waits, start=1):
        ceiling = min(0.1 * 2**failures, 5.0)
        assert ceiling / 2 <= seconds <= ceiling
    road.collector.always(OK)
    await eventually(lambda: road.journal.pending_bytes == 0)
    await eventually(lambda: shipper.failures_in_a_row == 0)
    assert road.numbers == [1, 2, 3]
    assert len({request.body for request in road.collector.requests}) == 1


async def test_a_disk_that_fails_does_not_end_the_shipping(road, in_background, monkeypatch, eventually):
    road.write(1)
    shipper = road.shipper()
    working = Shipper._new_plan

    def failing(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Shipper, "_new_plan", failing)
    task = in_background(shipper)
    await eventually(lambda: shipper.failures_in_a_row >= 1)
    monkeypatch.setattr(Shipper, "_new_plan", working)
    await eventually(lambda: road.journal.pending_bytes == 0)
    assert not task.done()


async def test_what_is_left_is_shipped_at_a_stop_within_its_time(road):
    road.write(3)
    await road.shipper().flush(within_seconds=2.0)
    assert road.numbers == [1, 2, 3]
    road.write(1)
    road.collector.always("stall")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await road.shipper().flush(within_seconds=0.1)
    assert loop.time() - began < 1.0 and road.journal.pending_bytes > 0
    again = road.restart()
    road.collector.always(OK)
    assert await again._ship_all()
    assert road.numbers == [1, 2, 3, 4]


async def test_a_gateways_records_reach_its_collector_also_those_of_its_last_moment(start_gateway, kit, upstream):
    upstream.always(OK)
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{upstream.port}/prefix")
    for _ in range(5):
        assert (await gateway.chat()).status == 200
    await gateway.gateway.stop()
    assert upstream.requests[0].line == "POST /prefix/v1/logs HTTP/1.1"
    records = [record for request in upstream.requests for record in parse_export_request(request.body).records]
    assert len(records) == 5
