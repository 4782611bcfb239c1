"""A gateway whose Redis answers late: what is granted to a request on its way is not granted to another as well."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from gateway.limits.counters.base import Shortage
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import slots
from tests.gateway.limits.redis_gateways import Gateways, TellingConnection, admit, now_ns

pytestmark = pytest.mark.service


@pytest.fixture
async def gateways(redis_server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(redis_server)
    yield opened
    await opened.close()


class HeldAnswers:
    """Redis' answers to one gateway, each of which waits to be passed on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gateway: str) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._is_holding = True
        send = TellingConnection._send

        async def hold(connection: TellingConnection, keys: Sequence[str], payload: bytes) -> bytes:
            reply = await send(connection, keys, payload)
            if self._is_holding and msgspec.msgpack.decode(payload)[0] == gateway:
                passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(passed)
                await passed
            return reply

        monkeypatch.setattr(TellingConnection, "_send", hold)

    async def come(self) -> None:
        """Wait for the next answer."""
        await happens(lambda: self._waiting, "an answer")

    def pass_on(self) -> None:
        """Pass an answer on."""
        self._waiting.pop().set_result(None)

    def end(self) -> None:
        """Pass all on from now on."""
        self._is_holding = False
        self.pass_on()


async def test_a_slot_taken_while_another_request_asks_is_not_granted_to_that_too(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = slots(3)
    store, other = await gateways.start("a"), await gateways.start("b")
    counter = store.open(rule, "")
    assert not isinstance(await admit(other, [(other.open(rule, ""), 1)]), Shortage)
    running = [await admit(store, [(counter, 1)]) for _ in range(2)]
    assert not any(isinstance(taken, Shortage) for taken in running), "all three are in use"
    answers = HeldAnswers(monkeypatch, "a")

    first = asyncio.create_task(admit(store, [(counter, 1)]))
    await answers.come()
    second = asyncio.create_task(admit(store, [(counter, 1)]))
    await asyncio.sleep(0)  # it waits until Redis has answered the first
    [ended, _] = running
    assert not isinstance(ended, Shortage)
    counter.settle(ended[0], 1, 0, now_ns())
    answers.pass_on()
    assert isinstance(await first, Shortage)
    await answers.come()  # to the second, which Redis grants the slot that has become free
    assert not isinstance(await admit(store, [(counter, 1)]), Shortage), "it is free here, until that is known"
    third = asyncio.create_task(admit(store, [(counter, 1)]))
    await asyncio.sleep(0)
    answers.end()
    assert isinstance(await second, Shortage) and isinstance(await third, Shortage)
    assert isinstance(await admit(store, [(counter, 1)]), Shortage), "two here and one there are all"
