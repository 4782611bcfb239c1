"""Streams of images, sound and transcriptions: passed on as they come, metered, ended and cancelled as chats are."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from contracts.metering.usage import UNKNOWN_USAGE, Usage
from tests.gateway.apis.media.conftest import IMAGE, PICO, SOUND, VOICE, WHISPER, draw, hard, hear
from tests.gateway.model_server import Upstream

SOUND_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n"
TOKENS_OF_IMAGE = {
    "input_tokens": 50, "output_tokens": 372, "total_tokens": 422,
    "input_tokens_details": {"text_tokens": 10, "image_tokens": 40},
}  # fmt: skip


def named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + Upstream.event({"type": kind, **fields})


PARTIAL = named("image_generation.partial_image", b64_json="aGk=", partial_image_index=0)
COMPLETED = named("image_generation.completed", b64_json="aGk=", quality="hd", size="1792x1024", usage=TOKENS_OF_IMAGE)
TEXTS = [named("transcript.text.delta", delta=word) for word in ("How ", "are ", "you")]
HEARD = named("transcript.text.done", text="How are you", usage={"type": "duration", "seconds": 9})
SOUNDS = [named("speech.audio.delta", audio="aGk=")] * 3
SPOKEN = named("speech.audio.done", usage={"input_tokens": 14, "output_tokens": 101, "total_tokens": 115})


def speak(gateway: Any, **fields: Any) -> Any:
    speech = gateway.sdk().audio.speech.with_streaming_response
    return speech.create(**{"model": VOICE, "voice": "alloy", "input": "Good morning", **fields})


async def body_of(gateway: Any, kit: Any, path: str, body: dict[str, Any]) -> Any:
    """Return the answer to a body, byte for byte."""
    return await gateway.ask(kit.request(body, path=path))


# images


async def test_partial_images_and_the_whole_one_go_on_as_they_came(start, upstream, kit):
    upstream.always(upstream.streamed(PARTIAL, b": wait\n\n", COMPLETED))
    gateway = await start()
    asked = {"model": IMAGE, "prompt": "a cat", "stream": True, "partial_images": 1}
    answer = await body_of(gateway, kit, "/v1/images/generations", asked)
    assert answer.body == PARTIAL + COMPLETED and answer.headers["content-type"].startswith("text/event-stream")
    assert upstream.requests[0].json == asked
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=10, input_image=40, output_text=0, output_image=372, images=1)
    assert (record.outcome, record.stream, record.count_method) == ("ok", True, "reported")
    assert (record.service_tier, record.cost_pico_usd) == ("image.hd.1792x1024", 12 * PICO // 100)
    assert record.ttft_ns and record.response_bytes > len(answer.body)


async def test_the_sdk_reads_a_stream_of_images(start, upstream):
    upstream.always(upstream.streamed(PARTIAL, COMPLETED))
    gateway = await start()
    events = [event async for event in await draw(gateway, stream=True, partial_images=1)]
    assert [event.type for event in events] == ["image_generation.partial_image", "image_generation.completed"]


async def test_each_of_several_images_of_a_stream_is_counted(start, upstream, kit):
    upstream.always(upstream.streamed(PARTIAL, COMPLETED, PARTIAL, COMPLETED))
    gateway = await start()
    asked = {"model": IMAGE, "prompt": "a cat", "stream": True, "n": 2}
    answer = await body_of(gateway, kit, "/v1/images/generations", asked)
    assert answer.body == (PARTIAL + COMPLETED) * 2
    [record] = gateway.requests()
    assert (record.usage.images, record.usage.output_image) == (2, 744)
    assert record.cost_pico_usd == 2 * 12 * PICO // 100


async def test_an_image_of_more_than_four_mebibytes_passes(start, upstream, kit):
    whole = named("image_generation.completed", b64_json="A" * (6 << 20))
    upstream.always(upstream.stream_head() + upstream.piece(whole) + upstream.END)
    gateway = await start()
    answer = await body_of(gateway, kit, "/v1/images/generations", {"model": IMAGE, "prompt": "a", "stream": True})
    assert answer.body == whole and gateway.requests()[0].usage == Usage(images=1)


async def test_a_client_that_leaves_before_the_image_pays_for_it_as_asked(start, upstream, kit, eventually):
    upstream.always(upstream.stream_head() + upstream.piece(PARTIAL), upstream.STALL)
    gateway = await start(budgets=[hard("1")])
    asked = {"model": IMAGE, "prompt": "a cat", "stream": True, "quality": "hd", "size": "1792x1024"}
    client = await gateway.connect()
    await client.send(kit.request(asked, path="/v1/images/generations"))
    assert (await client.head())[0] == 200
    assert PARTIAL in await client.reader.readuntil(PARTIAL[-10:])
    client.writer.close()
    await eventually(lambda: gateway.requests() and not upstream.open)
    [record] = gateway.requests()
    assert (record.outcome, record.count_method, record.usage) == ("cancelled", "estimate", Usage(images=1))
    assert record.charged_pico_usd == record.cost_pico_usd == 12 * PICO // 100


# transcriptions


@pytest.mark.parametrize("end", [HEARD, HEARD + b"data: [DONE]\n\n"])
async def test_a_transcription_streams_its_text_and_costs_its_seconds(start, upstream, end):
    upstream.always(upstream.streamed(*TEXTS, end))
    gateway = await start()
    events = [event async for event in await hear(gateway, stream=True)]
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == "How are you"
    assert events[-1].type == "transcript.text.done"
    [record] = gateway.requests()
    assert (record.stream, record.usage, record.cost_pico_usd) == (True, Usage(milliseconds=9_000), 9 * 100_000_000)
    assert b'name="stream"' in upstream.requests[0].body and SOUND in upstream.requests[0].body


async def test_a_transcription_in_vllms_chunks_is_counted_by_its_tokens(start, upstream, kit):
    chunk = {"id": "trsc-1", "object": "transcription.chunk", "choices": [{"delta": {"content": "hi"}}]}
    usage = {"prompt_tokens": 200, "completion_tokens": 3, "total_tokens": 203}
    events = [upstream.event(chunk), upstream.event({**chunk, "choices": [], "usage": usage}), b"data: [DONE]\n\n"]
    upstream.always(upstream.streamed(*events))
    card = {"model": WHISPER, "version": "w/2", "usd_per_mtok": {"input_text": "1", "output_text": "2"}}
    gateway = await start([card])
    form: Any = {"file": ("a.wav", b"x"), "model": (None, WHISPER), "stream": (None, "true")}
    head = {"authorization": f"Bearer {kit.KEY}"}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{gateway.base_url}/audio/transcriptions", files=form, headers=head)
    assert answer.content == b"".join(events)
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=200, output_text=3) and record.cost_pico_usd == 206_000_000


async def test_a_server_that_does_not_stream_answers_whole(start, upstream):
    upstream.always(upstream.whole({"text": "hi", "duration": 2}))
    gateway = await start()
    form: Any = {"file": ("a.wav", b"x"), "model": (None, WHISPER), "stream": (None, "true")}
    async with httpx.AsyncClient() as client:
        key = gateway.sdk().api_key
        answer = await client.post(
            f"{gateway.base_url}/audio/transcriptions", files=form, headers={"authorization": f"Bearer {key}"}
        )
    assert answer.json() == {"text": "hi", "duration": 2}
    assert gateway.requests()[0].usage == Usage(milliseconds=2_000)


async def test_a_transcription_that_is_cut_stays_charged_as_reserved(start, upstream, kit, eventually):
    upstream.always(upstream.stream_head() + upstream.piece(TEXTS[0]), upstream.STALL)
    gateway = await start(budgets=[hard("1")])
    stream = await hear(gateway, stream=True)
    assert (await anext(aiter(stream))).delta == "How "
    await stream.close()
    await eventually(lambda: gateway.requests() and not upstream.open)
    [record] = gateway.requests()
    assert (record.outcome, record.usage, record.cost_pico_usd) == ("cancelled", UNKNOWN_USAGE, None)
    assert record.charged_pico_usd


# speech


async def test_sound_is_heard_before_its_end_and_paid_though_the_client_leaves(start, upstream, eventually):
    upstream.always(SOUND_HEAD + upstream.piece(SOUND), upstream.STALL)
    gateway = await start(budgets=[hard("1")])
    async with speak(gateway) as answer:
        heard = b""
        async for piece in answer.iter_bytes():
            heard += piece
            if len(heard) == len(SOUND):
                break
        assert heard == SOUND and not gateway.requests(), "its request is still under way"
    await eventually(lambda: gateway.requests() and not upstream.open)
    [record] = gateway.requests()
    assert (record.outcome, record.usage, record.count_method) == ("cancelled", Usage(characters=12), "exact")
    assert record.charged_pico_usd == record.cost_pico_usd == 12 * 15_000_000
    assert record.ttft_ns


async def test_speech_in_events_has_characters_and_tokens(start, upstream, kit):
    upstream.always(upstream.streamed(*SOUNDS, SPOKEN))
    gateway = await start()
    asked = {"model": VOICE, "voice": "alloy", "input": "Good morning", "stream_format": "sse"}
    answer = await body_of(gateway, kit, "/v1/audio/speech", asked)
    assert answer.body == b"".join(SOUNDS) + SPOKEN
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=14, output_text=0, output_audio=101, characters=12)
    assert (record.stream, record.cost_pico_usd, record.unpriced_leaves) == (True, 12 * 15_000_000, [])


async def test_sound_that_breaks_off_is_not_ended_well(start, upstream, kit):
    upstream.always(SOUND_HEAD + upstream.piece(SOUND), upstream.CLOSE)
    gateway = await start()
    asked, head = {"model": VOICE, "voice": "alloy", "input": "Good morning"}, {"authorization": f"Bearer {kit.KEY}"}
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(f"{gateway.base_url}/audio/speech", json=asked, headers=head)
    [record] = gateway.requests()
    assert (record.outcome, record.usage) == ("error", Usage(characters=12))


async def test_another_target_speaks_if_the_first_breaks_off_before_any_sound(start_gateway, upstream, kit):
    upstream.then(SOUND_HEAD, upstream.CLOSE)
    upstream.always(SOUND_HEAD + upstream.piece(SOUND) + upstream.END)
    targets = [kit.http_target(upstream.url, "one"), kit.http_target(upstream.url, "two")]
    gateway = await start_gateway(kit.configuration((VOICE, targets)))
    async with speak(gateway) as answer:
        assert b"".join([piece async for piece in answer.iter_bytes()]) == SOUND
    assert gateway.requests()[0].attempts == 2


async def test_a_slow_listener_holds_the_server_back(start, upstream, kit, eventually):
    block = upstream.piece(b"s" * 65_536)
    upstream.always(SOUND_HEAD, *[block] * 1024, upstream.END)  # 64 MiB
    gateway = await start()
    client = await gateway.connect()
    await client.send(kit.request({"model": VOICE, "voice": "a", "input": "x"}, path="/v1/audio/speech"))
    await client.head()
    before = -1
    while upstream.bytes_written != before:  # until it stands still
        before = upstream.bytes_written
        await asyncio.sleep(0.2)
    assert before < 32 << 20
    client.writer.transport.abort()
    await eventually(lambda: gateway.requests())


# what goes wrong


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([PARTIAL], ""),
        ([PARTIAL, named("error", error={"message": "no more cats", "type": "server_error"})], "no more cats"),
        ([PARTIAL, b"data: {\n\n"], ""),
    ],
)
async def test_a_stream_that_fails_says_so_in_its_last_event(start, upstream, kit, events, said):
    upstream.always(upstream.streamed(*events))
    gateway = await start()
    answer = await body_of(gateway, kit, "/v1/images/generations", {"model": IMAGE, "prompt": "a", "stream": True})
    *passed, last = answer.events
    assert passed == [event.strip() for event in events[:1]]
    told = json.loads(last.removeprefix(b"data: "))["error"]
    assert told["type"] == "api_error" and "token" not in told["message"]
    [record] = gateway.requests()
    assert (record.outcome, record.upstream_message, record.usage) == ("error", said, Usage(images=1))


async def test_events_that_nobody_asked_for_are_the_servers_fault(start, upstream):
    upstream.always(upstream.streamed(COMPLETED))
    gateway = await start()
    with pytest.raises(openai.InternalServerError):
        await draw(gateway)


async def test_a_format_of_streams_that_is_none_is_refused(start, kit):
    gateway = await start()
    asked = {"model": VOICE, "voice": "a", "input": "x", "stream_format": "video"}
    answer = await body_of(gateway, kit, "/v1/audio/speech", asked)
    assert (answer.status, answer.error["param"]) == (400, "stream_format")
    assert "expected one of audio, sse" in answer.error["message"]
