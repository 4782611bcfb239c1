"""Large bodies over HTTP: what they hold is bounded, and so are the bytes that wait in memory."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.wire.large_bodies
from contracts.errors import BodyTooComplex
from gateway.wire.large_bodies import check_body

FIELDS = 1000
PADDING = "x" * (256 << 10)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\,:{}[] é', max_size=8),
    lambda one: st.lists(one, max_size=5) | st.dictionaries(st.text(alphabet='a"\\:,', max_size=3), one, max_size=5),
    max_leaves=40,
)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "scripted-1", "messages": [{"role": "user", "content": PADDING}], **more}


def counted(value: Any) -> tuple[int, int]:
    """How many objects, lists and fields a value holds, and how many commas part what is in them."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if parts is None:
        return 0, 0
    below = [counted(part) for part in parts]
    own = 1 + (len(value) if isinstance(value, dict) else 0)
    return own + sum(one[0] for one in below), max(len(value) - 1, 0) + sum(one[1] for one in below)


@given(value=VALUES, is_ascii=st.booleans(), window=st.integers(1, 40))
def test_what_a_body_holds_is_counted_outside_of_strings(value, is_ascii, window):
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    fields, items = counted(value)
    most = max(fields, -(-items // 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway.wire.large_bodies, "_WINDOW", window)
        patch.setattr(gateway.wire.large_bodies, "_is_within", lambda *_: False)
        check_body(body, most)
        if fields and most == fields:
            with pytest.raises(BodyTooComplex):
                check_body(body, most - 1)


@pytest.fixture
async def narrow(start_gateway, kit):
    """A gateway that takes a thousand fields in a body."""
    return await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), max_body_fields=FIELDS)


def metadata(count: int) -> dict[str, str]:
    return {f"f{number}": "v" for number in range(count)}


async def test_a_large_body_holds_up_to_the_limit_of_fields(narrow):
    plain = counted(chat(metadata={}))[0]
    at_limit = await narrow.chat(chat(metadata=metadata(FIELDS - plain)))
    above = await narrow.chat(chat(metadata=metadata(FIELDS - plain + 1)))
    assert at_limit.status == 200
    assert (above.status, above.error["code"]) == (400, "body_too_complex")
    assert "TOLLKEEPER_MAX_BODY_FIELDS" in above.error["message"] and f"than {FIELDS} " in above.error["message"]


async def test_what_stands_in_texts_does_not_count(narrow):
    code = '{"a": [1, 2], "b\\\\": {"c": "\\""}}' * 9000
    answer = await narrow.chat(chat(messages=[{"role": "user", "content": code}]))
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("items", [100, 10 * FIELDS + 50])
async def test_items_of_lists_have_ten_times_the_limit(narrow, items):
    answer = await narrow.complete(prompt=[7] * items, metadata={"a": PADDING})
    assert answer.status == (200 if items == 100 else 400)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/embeddings"])
async def test_every_endpoint_holds_large_bodies_to_it(narrow, path):
    body = {
        "model": "scripted-1",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": PADDING}, *[{"role": "user", "content": "a"}] * FIELDS],
        "input": PADDING,
    }
    answer = await narrow.ask(narrow.request(body, path=path))
    assert answer.status == 400 and b"TOLLKEEPER_MAX_BODY_FIELDS" in answer.body


async def test_a_refused_large_body_is_recorded_like_any(narrow):
    await narrow.chat(chat(metadata=metadata(2 * FIELDS)))
    [record] = narrow.requests()
    assert (record.outcome, record.error_code) == ("rejected", "body_too_complex")


async def test_words_of_a_long_prompt_are_counted_as_of_a_short_one(narrow):
    prompt = "one  two\nthree \u2003 four" + " w" * 300_000
    answer = await narrow.chat(chat(messages=[{"role": "user", "content": prompt}]))
    assert answer.json["usage"]["prompt_tokens"] == 300_004


async def test_a_flood_of_beginnings_of_directives_is_no_directive(narrow):
    answer = await narrow.chat(chat(messages=[{"role": "user", "content": "[[script " * 40_000}]))
    assert answer.status == 200


async def test_a_body_in_tiny_chunks_is_read_whole(narrow):
    body = json.dumps(chat()).encode()
    head = narrow.request(body).partition(b"\r\n\r\n")[0].replace(b"Content-Length", b"X-Length")
    pieces = b"".join(b"2\r\n%b\r\n" % body[at : at + 2] for at in range(0, len(body) - 1, 2))
    last = body[-1:] if len(body) % 2 else b""
    end = (b"1\r\n%b\r\n" % last if last else b"") + b"0\r\n\r\n"
    answer = await narrow.ask(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + end)
    assert answer.status == 200


async def test_large_bodies_of_all_connections_are_bounded(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(first_ms=500)]))
    running = await start_gateway(config, max_buffered_bytes=1 << 20)
    request = running.request({**kit.BODY, "metadata": {"a": "x" * 600_000}})
    first = await running.connect()
    await first.send(request[:-10])
    await asyncio.sleep(0.05)
    second = await running.ask(request)
    assert (second.status, second.error["code"]) == (503, "overloaded")
    assert "TOLLKEEPER_MAX_BUFFERED_BYTES" in second.error["message"]
    assert (await running.chat()).status == 200  # small ones are served
    await first.send(request[-10:])
    await asyncio.sleep(0.05)
    assert (await running.ask(request)).status == 503  # until its answer ends
    assert (await first.answer()).status == 200
    assert (await running.ask(request)).status == 200
    leaving = await running.connect()
    await leaving.send(request[:-10])
    await asyncio.sleep(0.05)
    leaving.close()
    await asyncio.sleep(0.05)
    assert (await running.ask(request)).status == 200


async def test_a_request_leaves_nothing_of_its_body_behind(start_gateway, kit):
    import gc
    import sys

    gc.freeze()  # what other tests left is not looked at
    running = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), max_body_fields=FIELDS)
    await running.chat()
    gc.disable()
    try:
        for body in (chat(), chat(metadata=metadata(FIELDS)), chat(max_tokens=3, temperature="hot")):
            await running.chat(body)
        del body
        await asyncio.sleep(0.05)
        kept = [one for holder in gc.get_objects() for one in gc.get_referents(holder) if isinstance(one, bytes | str)]
        assert not [one for one in kept if sys.getsizeof(one) > len(PADDING) and one is not PADDING]
    finally:
        gc.enable()
