"""What ends in one turn of the loop is written together: before it is answered, and before anybody counts on it."""

import asyncio
import errno
import os
import shutil

import pytest

import backends.segment_file
from gateway.journal import RECORD_ROOM_BYTES, Journal
from gateway.lane.quick_call import QuickCall


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    """A gateway with a budget, and requests served: what comes next goes the short way."""
    budgets = [{"tenant": "acme", "period": "month", "amount_usd": "100", "level": "tenant"}]
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    configuration = kit.configuration(("mock", [kit.http_target(upstream.url)]), budgets=budgets)
    running = await start_gateway(configuration)
    running.configuration = configuration
    for _ in range(2):
        assert (await running.chat(model="mock")).status == 200
    return running


def spent(running) -> list[int]:
    return [counter.settled for counter in running.gateway.counters.budgets()]


@pytest.mark.interpreted
async def test_totals_written_in_the_turn_of_a_charge_count_it_once_after_a_kill(
    gateway, start_gateway, tmp_path, monkeypatch
):
    journal, ends = gateway.gateway.journal, QuickCall._end

    def released_in_the_same_turn(call, error):
        asyncio.get_running_loop().call_soon(journal.release, journal.end)
        ends(call, error)

    monkeypatch.setattr(QuickCall, "_end", released_in_the_same_turn)
    assert (await gateway.chat(model="mock")).status == 200
    before = spent(gateway)
    left = shutil.copytree(gateway.gateway._settings.data, tmp_path / "killed", ignore=shutil.ignore_patterns("*lock"))
    restarted = await start_gateway(gateway.configuration, data=left)
    assert spent(restarted) == before and before[0] > 0


async def test_several_that_end_in_one_turn_each_have_their_record_and_answer(gateway):
    known = len(gateway.requests())
    answers = await asyncio.gather(*[gateway.chat(model="mock") for _ in range(8)])
    assert [answer.status for answer in answers] == [200] * 8
    assert len({record.request_id for record in gateway.requests()}) == known + 8


async def test_a_request_whose_target_is_away_tells_when_it_was_admitted(gateway):
    [plan] = gateway.gateway._lane._plans.values()
    for target in plan.lane.targets.values():
        target.health.is_plain = False
    assert (await gateway.chat(model="mock")).status == 200
    assert gateway.requests()[-1].admission_ns > 0


def test_room_that_a_failed_write_has_cost_is_not_promised(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal", max_bytes=1 << 30)
    assert journal.promise(100 * RECORD_ROOM_BYTES)
    write, failures = os.write, [OSError(errno.ENOSPC, "no space")]

    def failing_once(descriptor: int, block: bytes) -> int:
        if failures:
            raise failures.pop()
        return write(descriptor, block)

    def small_rest(descriptor: int, start: int, length: int) -> bool:
        if length > 4096:
            raise OSError(errno.ENOSPC, "no space")
        return True

    monkeypatch.setattr(os, "write", failing_once)
    monkeypatch.setattr(backends.segment_file, "reserve_blocks", small_rest)
    assert journal.append(1, b"x" * 400)
    assert not journal.promise(90 * RECORD_ROOM_BYTES)
    journal.close()
