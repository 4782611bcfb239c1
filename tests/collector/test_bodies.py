import gzip
from collections.abc import AsyncIterator

import pytest

from collector.receivers.bodies import InflightBytes, inflate, read_body
from contracts.errors import BodyTooLarge, InvalidRequest, LimitExceeded, UnsupportedMediaType


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("declared", [None, 10])
async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_refused(declared: int | None) -> None:
    inflight = InflightBytes(100)
    with inflight.lease() as lease:
        assert await read_body(chunks(b"12345", b"67890"), declared, 10, lease) == b"1234567890"
        held = inflight.held
    assert (held, inflight.held) == (10, 0)
    with inflight.lease() as lease, pytest.raises(BodyTooLarge, match="the limit is 9"):
        await read_body(chunks(b"12345", b"67890"), declared, 9, lease)
    assert inflight.held == 0


async def test_a_declared_length_beyond_the_limit_is_refused_before_a_byte_is_read() -> None:
    read: list[int] = []

    async def watched() -> AsyncIterator[bytes]:
        read.append(1)
        yield b""

    with InflightBytes(100).lease() as lease, pytest.raises(BodyTooLarge):
        await read_body(watched(), 11, 10, lease)
    assert not read


async def test_bodies_beyond_the_memory_bound_are_sent_away_and_their_share_is_given_back() -> None:
    inflight = InflightBytes(15)
    with inflight.lease() as first:
        await read_body(chunks(b"1234567890"), 10, 10, first)
        with inflight.lease() as second:
            assert await read_body(chunks(b"12345"), 5, 10, second) == b"12345"
        with inflight.lease() as third, pytest.raises(LimitExceeded) as caught:
            await read_body(chunks(b"123", b"456"), None, 10, third)
        assert caught.value.error_code == "memory_pressure"
        assert caught.value.retry_after_seconds == 1.0
        assert inflight.held == 10
    assert inflight.held == 0


def test_gzip_is_undone_also_in_several_members() -> None:
    assert inflate(b"plain", "", 10) == b"plain"
    assert inflate(b"plain", "identity", 10) == b"plain"
    assert inflate(gzip.compress(b"hello"), "gzip", 10) == b"hello"
    assert inflate(gzip.compress(b"hello") + gzip.compress(b"world"), "gzip", 10) == b"helloworld"


def test_what_inflates_to_the_bound_passes_and_one_byte_more_does_not() -> None:
    assert len(inflate(gzip.compress(bytes(1000)), "gzip", 1000)) == 1000
    with pytest.raises(BodyTooLarge, match="more than 1000 bytes"):
        inflate(gzip.compress(bytes(1001)), "gzip", 1000)
    with pytest.raises(BodyTooLarge):
        inflate(gzip.compress(bytes(600)) + gzip.compress(bytes(600)), "gzip", 1000)


@pytest.mark.parametrize(
    "body", [b"not gzip", gzip.compress(b"hello" * 100, mtime=0)[:-9], gzip.compress(b"x", mtime=0) + b"rest"]
)
def test_a_broken_gzip_stream_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        inflate(body, "gzip", 1000)
    assert caught.value.error_code == "malformed_gzip"


def test_an_unknown_content_encoding_is_named() -> None:
    with pytest.raises(UnsupportedMediaType, match="'br'"):
        inflate(b"", "br", 10)
