"""Kept answers as bytes: read as they were written, or not at all; what callers say; and flights."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.metering.usage import Usage
from gateway.cache.cache_control import ANY, CacheWish, read_cache_control
from gateway.cache.cached_answer import CachedAnswer, UnreadableAnswer, pack_answer, unpack_answer
from gateway.cache.flights import FlightResult, Flights
from gateway.replies.answer_copy import AnswerCopy

ANSWER = CachedAnswer(is_stream=False, end=b'{"a":1}', served=((b"x", b"y"),), usage=Usage(input_text=3), seller="s")
PACKED = pack_answer(ANSWER)


def test_what_is_packed_is_read_again() -> None:
    assert unpack_answer(PACKED) == ANSWER
    stream = CachedAnswer(is_stream=True, begun=b"data: {\n\n", end=b"data: [DONE]\n\n")
    assert unpack_answer(pack_answer(stream)) == stream


@pytest.mark.parametrize("end", [b"", b'{"a":', b"\xff", b"[" * 100_000])
def test_a_whole_answer_that_is_no_json_is_none(end: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        unpack_answer(pack_answer(CachedAnswer(is_stream=False, end=end)))


@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
def test_no_changed_byte_goes_unseen(place: int, change: int) -> None:
    broken = bytearray(PACKED)
    broken[place] ^= change
    with pytest.raises(UnreadableAnswer):
        unpack_answer(bytes(broken))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_answer_are_none(packed: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        unpack_answer(packed)


@pytest.mark.parametrize(("size", "fits"), [(9, True), (10, True), (11, False)])
def test_a_copy_ends_at_its_bound(size: int, fits: bool) -> None:
    copy = AnswerCopy(10)
    for _ in range(size - 2):
        copy.take(b"x")
    assert copy.with_end(b"..") == ((b"x" * (size - 2), b"..") if fits else None)


@pytest.mark.parametrize(
    ("header", "wish"),
    [
        ("", ANY),
        ("private, x=1", ANY),
        ("no-store, max-age=5", CacheWish(may_read=False, may_keep=False)),
        ("No-Cache", CacheWish(may_read=False)),
        ("max-age=0", CacheWish(may_read=False, max_age_seconds=0)),
        ('max-age = "60" , max-age=90', CacheWish(max_age_seconds=60)),
        ("max-age=-1", ANY),
        ("max-age=9999999999", ANY),
    ],
)
def test_cache_control_is_read_as_far_as_it_is_known(header: str, wish: CacheWish) -> None:
    assert read_cache_control(header) == wish


async def test_a_flight_that_takes_too_long_is_left_and_lands_for_others() -> None:
    flights = Flights()
    flight = flights.open("a", b"k")
    assert flights.find("b", b"k") is None and flights.find("a", b"k") is flight
    assert await flight.wait(0.001) is None
    waiting = asyncio.ensure_future(flight.wait(5))
    await asyncio.sleep(0)
    flight.finish(FlightResult.KEPT)
    flight.finish(FlightResult.WITHOUT)  # changes nothing
    assert await waiting is FlightResult.KEPT and len(flights) == 0
