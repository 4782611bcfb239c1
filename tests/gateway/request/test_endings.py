"""What ends in one turn of the loop is written together: before it is answered, and before anybody counts on it."""

import asyncio
import errno
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends.segment_log.segment_file
from gateway.records.journal import RECORD_ROOM_BYTES, Journal
from gateway.request.endings import Ending, Endings
from gateway.request.request_state import RequestState


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    """A gateway with a budget, and requests served: what comes next goes by a plan."""
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
    journal, ends = gateway.gateway.journal, RequestState.reply_ended

    def released_in_the_same_turn(life, error):
        asyncio.get_running_loop().call_soon(journal.release, journal.end)
        ends(life, error)

    monkeypatch.setattr(RequestState, "reply_ended", released_in_the_same_turn)
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
    [plan] = gateway.gateway._dispatcher.plans.known.values()
    for target in plan.plan.targets.values():
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
    monkeypatch.setattr(backends.segment_log.segment_file, "reserve_blocks", small_rest)
    assert journal.append(1, b"x" * 400)
    assert not journal.promise(90 * RECORD_ROOM_BYTES)
    journal.close()


class _Books:
    """Keeps what is written, in order, beside what is sent and counted."""

    def __init__(self):
        self.told = []

    def write(self, endings):
        self.told.append(("written", [ending.number for ending in endings]))


class Ended(Ending):
    """A request that tells when it is sent and counted, and may fail then."""

    def __init__(self, books, number, *, fails=False):
        self._books, self.number, self._fails = books, number, fails

    def reply_ended(self, error):
        pass

    def prepare(self):
        pass

    def send(self):
        self._books.told.append(("sent", [self.number]))

    def follow_up(self):
        self._books.told.append(("counted", [self.number]))
        if self._fails:
            raise RuntimeError("a bug")


def counted(*numbers):
    return [("counted", [number]) for number in numbers]


async def turn():
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_what_ends_alone_is_answered_at_once_and_what_ends_together_shares_a_write():
    books = _Books()
    endings = Endings(books.write, lambda: books.told.append(("prepared", [])))

    async def told_by(*numbers):
        books.told.clear()
        for number in numbers:
            endings.answer(Ended(books, number))
        at_once = [(what, which) for what, which in books.told]
        await turn()
        return at_once, books.told[len(at_once) :]

    alone = [("written", [1]), ("sent", [1])]
    assert await told_by(1) == (alone, [("counted", [1]), ("prepared", [])])
    first, rest = await told_by(2, 3, 4)  # that others follow the first is not known yet
    assert first == [("written", [2]), ("sent", [2])]
    assert rest == [("written", [3, 4]), ("sent", [3]), ("sent", [4]), *counted(2, 3, 4), ("prepared", [])]
    first, rest = await told_by(5, 6)  # now it is
    assert first == []
    assert rest == [("written", [5, 6]), ("sent", [5]), ("sent", [6]), *counted(5, 6), ("prepared", [])]
    first, rest = await told_by(7)
    assert first == [] and rest[:2] == [("written", [7]), ("sent", [7])]
    assert (await told_by(8))[0] == [("written", [8]), ("sent", [8])]


async def test_what_an_answer_does_not_wait_for_follows_it_once_and_others_are_counted_whatever_fails(caplog):
    books = _Books()
    endings = Endings(books.write, lambda: None)

    def end(*numbers, failing=()):
        books.told.clear()
        for number in numbers:
            endings.answer(Ended(books, number, fails=number in failing))

    end(1)
    assert books.told == [("written", [1]), ("sent", [1])]
    await turn()
    assert books.told[2:] == [("counted", [1])]

    end(2, 3)
    await turn()
    end(4, 5)
    endings.close()  # as before the counters are written down: no record is missing then that they hold
    endings.close()
    assert books.told == [("written", [4, 5])]
    await turn()
    assert books.told[1:] == [("sent", [4]), ("sent", [5]), ("counted", [4]), ("counted", [5])]

    end(6, 7, failing=[6])
    await turn()
    assert [what for what in books.told if what[0] == "counted"] == [("counted", [6]), ("counted", [7])]
    assert "a request could not be counted" in caplog.text


async def test_the_end_of_a_stream_waits_for_the_turns_end_and_makes_others_wait_with_it():
    books = _Books()
    endings = Endings(books.write, lambda: None)
    endings.add(Ended(books, 1))
    endings.answer(Ended(books, 2))
    assert books.told == []
    await turn()
    assert books.told == [("written", [1, 2]), ("sent", [1]), ("sent", [2]), *counted(1, 2)]


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=12))
def test_every_request_is_written_before_it_is_answered_and_counted_after_it_once_each(turns):
    books = _Books()

    async def go():
        endings = Endings(books.write, lambda: None)
        number = 0
        for ends in turns:
            for is_stream in ends:
                number += 1
                (endings.add if is_stream else endings.answer)(Ended(books, number))
            await asyncio.sleep(0)
        await turn()
        return number

    total = asyncio.run(go())
    places: dict[str, dict[int, int]] = {"written": {}, "sent": {}, "counted": {}}
    for place, (what, numbers) in enumerate(books.told):
        for number in numbers:
            assert number not in places[what]
            places[what][number] = place
    assert {len(each) for each in places.values()} == {total}
    for number in range(1, total + 1):
        assert places["written"][number] < places["sent"][number] < places["counted"][number]
