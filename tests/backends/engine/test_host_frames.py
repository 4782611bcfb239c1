"""What is not a message of the wire ends the connection it came on, and no other."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.engine.frame_splitter import MAX_FRAME_BYTES
from contracts.engine.wire import (
    WIRE_VERSION,
    Abort,
    Answer,
    Attach,
    Call,
    Embed,
    Finished,
    FromGateway,
    Hello,
    StepsAck,
    frame,
    from_gateway,
)
from contracts.errors import InvalidRecord
from tests.backends.engine.host_client import RunningHost, StartHost, make_submit

ATTACH = frame(Attach(version=WIRE_VERSION, gateway="g"))
MESSAGES: list[FromGateway] = [
    Attach(version=WIRE_VERSION, gateway="g"),
    make_submit(1, [1, 2, 3], model="scripted", stop=["x"], seed=7),
    Embed(request_id=b"e", model="minilm-l6-v2", inputs=[[1, 2], [3]]),
    Abort(request_id=b"a" * 16),
    StepsAck(sequence=4),
    Call(call_id=1, verb="health", options={"seconds": 1.5}),
]
MALFORMED = {
    "absurd length": (MAX_FRAME_BYTES + 1).to_bytes(4, "little"),
    "largest length": b"\xff\xff\xff\xff",
    "empty body": b"\0\0\0\0",
    "unknown tag": b"\x08\0\0\0\x91\xa6nobody",
    "no array": b"\x01\0\0\0\x01",
    "a host's message": frame(Finished(request_id=b"x", finish_reason="stop")),
    "trailing bytes": b"\x0d\0\0\0\x92\xa9steps_ack\x04\0",
    "a wrong type": b"\x0c\0\0\0\x92\xa9steps_ack\xc3",
    "attached twice": ATTACH,
}


async def check_still_serves(running: RunningHost) -> None:
    client = await (await running.client("sound")).ready("scripted")
    assert (await client.run(make_submit(77, [1], model="scripted"))).finish_reason == "length"
    await client.close()


async def test_a_malformed_frame_is_answered_with_its_reason_and_ends_the_connection(start_host: StartHost) -> None:
    running = await start_host("scripted")
    sound = await (await running.client("sound")).ready("scripted")
    for number, (name, malformed) in enumerate(MALFORMED.items()):
        broken = await running.raw()
        broken.writer.write(ATTACH + malformed)
        await broken.until_closed()
        (answer,) = broken.of(Answer)
        assert (answer.call_id, answer.ok, answer.error_code) == (0, False, "invalid_record"), name
        assert (await sound.run(make_submit(number, [1], model="scripted"))).finish_reason == "length", name
        assert not sound.is_closed, name


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
async def test_no_truncation_of_a_message_does_harm(start_host: StartHost, message: FromGateway) -> None:
    running = await start_host("scripted")
    whole = frame(message)
    before = ATTACH if not isinstance(message, Attach) else b""
    for cut in range(len(whole)):
        cut_off = await running.raw(read=False)
        cut_off.writer.write(before + whole[:cut])
        cut_off.writer.write_eof()
        cut_off.writer.close()
    await check_still_serves(running)
    # The same bytes with a length that says they are all: a body cut short.
    for cut in range(len(whole) - 4):
        body = whole[4 : 4 + cut]
        with pytest.raises(InvalidRecord):
            if from_gateway(body) != message:
                raise InvalidRecord("fields left out have their defaults")
        broken = await running.raw()
        broken.writer.write(before + len(body).to_bytes(4, "little") + body)
        broken.writer.write_eof()
        await broken.until_closed()
    await check_still_serves(running)
    assert running.host.requests == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        from_gateway(data)
    except InvalidRecord:
        pass


async def test_a_message_before_attach_is_refused(start_host: StartHost) -> None:
    running = await start_host("scripted")
    client = await running.raw()
    client.send(make_submit(1, [1], model="scripted"))
    await client.until_closed()
    assert "attach" in client.of(Answer)[0].error_message


@pytest.mark.parametrize("version", [WIRE_VERSION - 1, WIRE_VERSION + 1])
async def test_another_version_of_the_wire_is_refused_by_name(start_host: StartHost, version: int) -> None:
    running = await start_host("scripted")
    client = await running.raw()
    client.send(Attach(version=version, gateway="old"))
    await client.until_closed()
    (answer,) = client.of(Answer)
    assert answer.error_code == "wire_version_mismatch"
    assert str(version) in answer.error_message and str(WIRE_VERSION) in answer.error_message


async def test_the_host_speaks_first_and_says_what_it_serves(start_host: StartHost) -> None:
    running = await start_host("scripted")
    client = await running.raw()
    await client.until(lambda: bool(client.of(Hello)))
    hello = client.of(Hello)[0]
    assert isinstance(client.messages[0], Hello)
    assert (hello.version, hello.engine_kind, hello.models[0].id) == (WIRE_VERSION, "torch", "scripted")


async def test_frames_in_one_write_and_in_single_bytes_are_the_same(start_host: StartHost) -> None:
    running = await start_host("scripted")
    await (await running.client()).ready("scripted")
    client = await running.raw()
    submits = [make_submit(number, [1], model="scripted", max_tokens=2) for number in (1, 2)]
    for byte in ATTACH + b"".join(map(frame, submits[:1])):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    client.writer.write(b"".join(map(frame, submits[1:])))
    for submit in submits:
        assert (await client.end(submit.request_id)).finish_reason == "length"


async def test_more_connections_than_the_limit_are_turned_away(start_host: StartHost) -> None:
    running = await start_host("scripted")
    held = [await running.raw() for _ in range(256)]
    await held[-1].until(lambda: bool(held[-1].of(Hello)))
    extra = await running.raw()
    await extra.until_closed()
    assert not held[0].is_closed
