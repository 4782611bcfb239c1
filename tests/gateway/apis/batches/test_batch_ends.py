"""How batches come to their end: cancelled, expired, out of budget, without a payer; and what they wait for."""

import asyncio
import json
import threading
import time
from dataclasses import replace

import pytest

from gateway.apis.batches.input_lines import InputReader
from gateway.request.clock import Clock
from tests.gateway.apis.batches.batch_kit import CHAT, chat_line, create, ended, results


def lines_of(count, **body):
    return [chat_line(f"r{number}", **body) for number in range(count)]


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with one scripted model, which a batch may ask twice at a time unless told otherwise."""

    async def start(limits=(), budgets=(), script=None, batch_concurrency=2, prices=None, **settings):
        config = kit.configuration(
            ("scripted-1", [kit.scripted(**(script or {}))]), limits=list(limits), budgets=list(budgets)
        )
        if prices is not None:
            config["prices"] = prices
        return await start_gateway(config, batch_concurrency=batch_concurrency, **settings)

    return start


def clock_of(gateway):
    """Put a clock into the runner that a test can turn, before its first batch."""
    ahead = [0]
    gateway.gateway.batches._runner._clock = Clock(wall_ns=lambda: time.time_ns() + ahead[0])
    return ahead


async def test_a_cancelled_batch_keeps_what_was_done_and_names_the_rest(start, eventually):
    gateway = await start(script={"first_ms": 150})
    client = gateway.sdk()
    batch = await create(client, lines_of(40, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 2, 10)
    cancelling = await client.batches.cancel(batch.id)
    assert cancelling.status == "cancelling" and cancelling.cancelling_at is not None
    done = await ended(client, batch)
    assert done.status == "cancelled" and done.cancelled_at is not None
    good, bad = await results(client, done.output_file_id), await results(client, done.error_file_id)
    assert len(good) == done.request_counts.completed == len(gateway.requests()) >= 2, "what was in progress is kept"
    assert len(bad) == done.request_counts.failed == 40 - len(good)
    for line in bad.values():
        assert line["response"] is None and line["error"]["code"] == "batch_cancelled"
    assert (await client.batches.cancel(batch.id)).status == "cancelled", "a second time changes nothing"


async def test_a_batch_that_has_ended_is_not_cancelled(start):
    gateway = await start()
    client = gateway.sdk()
    done = await ended(client, await create(client, lines_of(1)))
    with pytest.raises(Exception, match="has ended: it is completed"):
        await client.batches.cancel(done.id)


@pytest.mark.parametrize(("late_ns", "expires"), [(-(10**9), False), (0, True), (10**9, True)])
async def test_a_window_that_ends_expires_what_was_not_begun(start, eventually, late_ns, expires):
    gateway = await start(script={"first_ms": 100})
    ahead, client = clock_of(gateway), gateway.sdk()
    batch = await create(client, lines_of(12, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 2, 10)
    ahead[0] = batch.expires_at * 10**9 + late_ns - time.time_ns() - (0 if expires else 60 * 10**9)
    done = await ended(client, batch)
    good, bad = await results(client, done.output_file_id), await results(client, done.error_file_id)
    assert len(good) + len(bad) == 12 and len(good) == len(gateway.requests())
    if expires:
        assert done.status == "expired" and done.expired_at is not None and 2 <= len(good) < 12
        assert {line["error"]["code"] for line in bad.values()} == {"batch_expired"}
    else:
        assert done.status == "completed" and not bad


async def test_lines_that_meet_a_rate_limit_wait_as_told(start):
    limit = {"id": "slow", "tenant": "acme", "level": "tenant", "metric": "requests", "amount": 3, "window": "second"}
    gateway = await start([limit], batch_concurrency=4)
    client = gateway.sdk()
    began = time.monotonic()
    done = await ended(client, await create(client, lines_of(7, max_tokens=1)))
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 7, 0)
    assert time.monotonic() - began > 2.0, "three a second"
    outcomes = [record.outcome for record in gateway.requests()]
    assert outcomes.count("ok") == 7 and set(outcomes) <= {"ok", "rejected"}
    assert all(not record.cost_pico_usd for record in gateway.requests() if record.outcome == "rejected")


async def test_a_line_that_asks_for_more_than_is_ever_allowed_fails_at_once(start):
    limit = {"id": "small", "tenant": "acme", "level": "tenant", "metric": "tokens", "amount": 2, "window": "day"}
    gateway = await start([limit])
    client = gateway.sdk()
    done = await ended(client, await create(client, lines_of(1, max_tokens=1)))
    error = (await results(client, done.error_file_id))["r0"]["response"]
    assert error["status_code"] == 429 and error["body"]["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(("pico_usd", "paid"), [(9_999_999, 3), (10_000_000, 4), (10_000_001, 4)])
async def test_a_hard_budget_pays_for_as_many_lines_as_it_can_at_batch_prices(start, pico_usd, paid):
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "total"}
    usd = f"{pico_usd // 10**12}.{pico_usd % 10**12:012}"
    prices = [
        {
            "model": "scripted-1",
            "version": "t/1",
            "usd_per_mtok": {"input_text": "1", "output_text": "2"},
            "batch_usd_per_mtok": {"input_text": "0.5", "output_text": "1"},
        }
    ]
    gateway = await start(budgets=[{**budget, "amount_usd": usd}], prices=prices)
    client = gateway.sdk()
    done = await ended(client, await create(client, lines_of(6, max_tokens=1)))
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", paid, 6 - paid)
    for line in (await results(client, done.error_file_id)).values():
        assert line["response"]["status_code"] == 429
        assert line["response"]["body"]["error"]["code"] == "insufficient_quota"
    assert sum(record.charged_pico_usd or 0 for record in gateway.requests()) == paid * 2_500_000 <= pico_usd


async def test_a_key_that_is_revoked_pays_for_nothing_further(start, eventually):
    gateway = await start(script={"first_ms": 100})
    client = gateway.sdk()
    batch = await create(client, lines_of(12, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 2, 10)
    directory = gateway.gateway.directory
    whole = directory.snapshot
    directory.snapshot = replace(whole, keys={})
    await eventually(lambda: not gateway.gateway.batches.state.batches, 10)
    directory.snapshot = whole  # for the client to look
    done = await ended(client, batch)
    assert done.status == "failed" and done.failed_at is not None
    [fault] = done.errors.data
    assert fault.code == "invalid_api_key" and "'key_1'" in fault.message and "revoked" in fault.message
    good, bad = await results(client, done.output_file_id), await results(client, done.error_file_id)
    assert len(good) == len(gateway.requests()) and len(good) + len(bad) == 12
    assert {line["error"]["code"] for line in bad.values()} == {"batch_failed"}


async def test_a_key_that_is_rotated_goes_on_paying(start, eventually):
    gateway = await start(script={"first_ms": 50})
    client = gateway.sdk()
    batch = await create(client, lines_of(8, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 2, 10)
    directory = gateway.gateway.directory
    [entry] = directory.snapshot.keys.values()
    [digest] = directory.snapshot.keys
    other = type(entry)(bytes(32), entry.identity)
    directory.snapshot = replace(directory.snapshot, keys={bytes(32): other})
    await eventually(lambda: not gateway.gateway.batches.state.batches, 10)
    directory.snapshot = replace(directory.snapshot, keys={digest: entry})
    assert (await ended(client, batch)).request_counts.completed == 8


async def test_a_model_that_is_away_is_waited_for(start, kit, eventually, monkeypatch):
    monkeypatch.setattr("gateway.apis.batches.line_retries._FIRST_SECONDS", 0.1)
    gateway = await start(script={"fault": "refuse"})
    client = gateway.sdk()
    batch = await create(client, lines_of(2, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 2, 10)
    target = gateway.target("scripted-1", "s1")
    target._script = type(target._script)()
    done = await ended(client, batch)
    assert (done.request_counts.completed, done.request_counts.failed) == (2, 0)


async def test_a_line_that_keeps_failing_at_its_model_is_given_up_after_three_tries(start, monkeypatch):
    monkeypatch.setattr("gateway.apis.batches.line_retries._FIRST_SECONDS", 0.1)
    gateway = await start(script={"fault": "break", "after": 1})
    client = gateway.sdk()
    done = await ended(client, await create(client, lines_of(1)))
    [error] = (await results(client, done.error_file_id)).values()
    assert error["response"]["status_code"] == 502 and len(gateway.requests()) == 3
    assert all(record.cost_pico_usd for record in gateway.requests()), "each try is billed for what it made"


async def test_a_line_that_something_else_cancels_is_not_lost(start):
    gateway = await start()

    async def cancelled(call, sink):
        raise asyncio.CancelledError

    gateway.target("scripted-1", "s1").call = cancelled
    client = gateway.sdk()
    done = await ended(client, await create(client, lines_of(3)))
    assert (done.status, done.request_counts.failed) == ("completed", 3)
    assert set(await results(client, done.error_file_id)) == {"r0", "r1", "r2"}


async def test_sweeping_up_many_files_keeps_nobody_waiting(start):
    gateway = await start()
    client, runner = gateway.sdk(), gateway.gateway.batches._runner
    await ended(client, await create(client, lines_of(1)))

    async def sweep(now_unix):
        await asyncio.sleep(0)
        return 20

    runner._shop.files.sweep, runner._sweep_at_ns = sweep, 0
    for _ in range(2):
        assert (await ended(client, await create(client, lines_of(1)), within=5)).status == "completed"


async def test_an_input_is_read_off_the_loop_to_its_last_line(start, monkeypatch):
    took, threads = InputReader._take, set()

    def take(self, text):
        threads.add(threading.current_thread())
        return took(self, text)

    monkeypatch.setattr(InputReader, "_take", take)
    gateway = await start()
    client = gateway.sdk()
    file = await client.files.create(file=("in.jsonl", json.dumps(chat_line("a")).encode()), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert (await ended(client, await made)).status == "completed"
    assert threads and threading.current_thread() not in threads


async def test_an_input_deleted_before_it_was_read_fails_the_batch(start):
    gateway = await start()
    client = gateway.sdk()
    runner = gateway.gateway.batches._runner
    runner._is_stopping = True  # nothing is read yet
    batch = await create(client, lines_of(1))
    await client.files.delete(batch.input_file_id)
    runner._is_stopping = False
    runner.wake()
    done = await ended(client, batch)
    assert done.status == "failed" and [fault.code for fault in done.errors.data] == ["file_not_found"]


async def test_an_input_may_be_deleted_once_it_was_read(start):
    gateway = await start(script={"first_ms": 50})
    client = gateway.sdk()
    batch = await create(client, lines_of(8, max_tokens=1))
    await ended(client, batch, states=("in_progress",))
    await client.files.delete(batch.input_file_id)
    assert (await ended(client, batch)).request_counts.completed == 8


async def test_a_batch_cancelled_before_it_was_read_has_no_files(start):
    gateway = await start()
    client = gateway.sdk()
    runner = gateway.gateway.batches._runner
    runner._is_stopping = True
    batch = await create(client, lines_of(3))
    await client.batches.cancel(batch.id)
    runner._is_stopping = False
    runner.wake()
    done = await ended(client, batch)
    assert done.status == "cancelled" and done.output_file_id is done.error_file_id is None
    assert gateway.requests() == []


async def test_a_batch_waits_behind_everyone_else_in_a_pool_s_queue(start_gateway, kit, eventually):
    config = kit.configuration(("scripted-1", [kit.scripted(first_ms=80)]))
    config["pools"][0]["queue"] = {"max_in_flight": 1, "ageing_seconds": 1000}
    gateway = await start_gateway(config, batch_concurrency=4)
    client = gateway.sdk()
    batch = await create(client, lines_of(8, max_tokens=1))
    await eventually(lambda: len(gateway.requests()) >= 1, 10)
    await asyncio.gather(*(gateway.chat(max_tokens=1) for _ in range(2)))
    done_before = [record.priority for record in gateway.requests()].count("batch")
    assert done_before <= 5, "the others did not wait for the batch to end"
    assert (await ended(client, batch)).request_counts.completed == 8
