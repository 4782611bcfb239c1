"""Images, transcriptions, speech and moderations through OpenAI's SDK: passed through, metered, priced, limited."""

import json
import math
from typing import Any

import openai
import pytest

from contracts.metering.usage import UNKNOWN_USAGE, Usage
from tests.gateway.apis.media.conftest import CARDS, IMAGE, JUDGE, PICO, SOUND, VOICE, WHISPER, draw, hard, hear


def images(count: int, **more: Any) -> dict[str, Any]:
    return {"created": 1, "data": [{"b64_json": "aGk="}] * count, **more}


def other(body: bytes, kind: str, status: int = 200) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


# images


@pytest.mark.parametrize(
    ("asked", "answered", "usd", "tier"),
    [
        ({}, 1, "0.04", ""),
        ({"n": 3}, 3, "0.12", ""),
        ({"n": 3}, 2, "0.08", ""),
        ({"quality": "hd"}, 1, "0.08", "image.hd"),
        ({"quality": "hd", "size": "1024x1024"}, 1, "0.08", "image.hd.1024x1024"),
        ({"quality": "hd", "size": "1792x1024", "n": 2}, 2, "0.24", "image.hd.1792x1024"),
        ({"quality": "standard", "size": "1024x1024"}, 1, "0.04", "image.standard.1024x1024"),
    ],
)
async def test_images_are_priced_by_their_number_quality_and_size(start, upstream, asked, answered, usd, tier):
    upstream.always(upstream.whole(images(answered)))
    gateway = await start()
    answer = await draw(gateway, **asked)
    assert [one.b64_json for one in answer.data] == ["aGk="] * answered
    [record] = gateway.requests()
    assert (record.api, record.operation, record.outcome) == ("images.generations", "image_generation", "ok")
    assert (record.usage, record.count_method) == (Usage(images=answered), "reported")
    assert record.cost_pico_usd == int(float(usd) * 100) * PICO // 100
    assert (record.service_tier, record.choices) == (tier, asked.get("n", 1))
    assert record.price_version == {"": "i/1", "image.hd": "i/1#image.hd"}.get(tier, record.price_version)


async def test_the_kind_that_the_provider_chose_is_the_one_that_is_paid(start, upstream):
    upstream.always(upstream.whole(images(1, quality="hd", size="1792x1024")))
    gateway = await start()
    await draw(gateway, quality="auto", size="auto")
    [record] = gateway.requests()
    assert (record.service_tier, record.cost_pico_usd) == ("image.hd.1792x1024", 12 * PICO // 100)


async def test_images_that_are_sold_by_tokens_are_priced_by_these_alone(start, upstream):
    usage = {
        "input_tokens": 50, "output_tokens": 1056, "total_tokens": 1106,
        "input_tokens_details": {"text_tokens": 10, "image_tokens": 40},
    }  # fmt: skip
    card = {
        "model": IMAGE,
        "version": "i/2",
        "usd_per_mtok": {"input_text": "5", "input_image": "10", "output_image": "40"},
    }
    upstream.always(upstream.whole(images(1, usage=usage)))
    gateway = await start([card])
    await draw(gateway)
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=10, input_image=40, output_text=0, output_image=1056, images=1)
    assert record.cost_pico_usd == 10 * 5_000_000 + 40 * 10_000_000 + 1056 * 40_000_000
    assert record.unpriced_leaves == []


# transcriptions


@pytest.mark.parametrize(
    ("answer", "milliseconds"),
    [
        ({"text": "hi", "usage": {"type": "duration", "seconds": 9}}, 9_000),
        ({"text": "hi", "duration": 8.470000267028809, "language": "english"}, 8_470),
        ({"text": "hi", "duration": 8.47, "usage": {"type": "duration", "seconds": 9}}, 9_000),
        ({"text": "hi", "duration": "12.5"}, 12_500),
        ({"text": "", "duration": 0}, 0),
    ],
)
async def test_seconds_are_those_of_the_usage_else_of_the_answer(start, upstream, answer, milliseconds):
    upstream.always(upstream.whole(answer))
    gateway = await start()
    heard = await hear(gateway, response_format="verbose_json", language="en")
    assert heard.text == answer["text"]
    [record] = gateway.requests()
    assert (record.api, record.operation, record.count_method) == ("audio.transcriptions", "transcription", "reported")
    assert record.usage == Usage(milliseconds=milliseconds)
    assert record.cost_pico_usd == milliseconds * 100_000


@pytest.mark.parametrize(
    "sent",
    [
        other(b'{"text":"hi"}', "application/json"),
        other(b"hi\n", "text/plain; charset=utf-8"),
        other(b'{"text":"hi","duration":-1}', "application/json"),
        other(b'{"text":"hi","duration":"long"}', "application/json"),
    ],
)
async def test_seconds_that_nobody_tells_are_unknown_and_not_free(start, upstream, sent):
    upstream.always(sent)
    gateway = await start(budgets=[hard("1")])
    await hear(gateway, response_format="text" if b"text/plain" in sent else "json")
    [record] = gateway.requests()
    assert (record.usage, record.count_method) == (UNKNOWN_USAGE, "none")
    assert (record.cost_pico_usd, record.cost_basis) == (None, "unknown_usage")
    assert record.charged_pico_usd, "what was reserved stays charged"


async def test_the_form_arrives_as_it_came_but_for_the_models_name(start, upstream):
    upstream.always(other(b"1\n00:00\nhi\n", "application/x-subrip"))
    gateway = await start(target={"model": "large-v3-turbo"})
    text = await hear(gateway, response_format="srt", timestamp_granularities=["word", "segment"], prompt="Ö")
    assert text == "1\n00:00\nhi\n"
    [sent] = upstream.requests
    assert sent.line == "POST /v1/audio/transcriptions HTTP/1.1"
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=") and SOUND in sent.body
    assert b"\r\n\r\nlarge-v3-turbo\r\n" in sent.body and WHISPER.encode() not in sent.body
    assert sent.body.count(b"timestamp_granularities[]") == 2 and "Ö".encode() in sent.body


async def test_tokens_and_seconds_measure_the_same_and_are_paid_once(start, upstream):
    usage = {
        "type": "tokens", "input_tokens": 14, "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
        "output_tokens": 5, "total_tokens": 19,
    }  # fmt: skip
    upstream.always(upstream.whole({"text": "hi", "usage": usage, "duration": 2}))
    gateway = await start()
    await hear(gateway)
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=4, input_audio=10, output_text=5, milliseconds=2_000)
    assert (record.cost_pico_usd, record.unpriced_leaves) == (200_000_000, [])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"file": ("a.wav", b"x"), "model": ""}, "model"),
        ({"model": (None, WHISPER)}, "file"),
        ({"file": ("a.wav", b""), "model": (None, WHISPER)}, "file"),
        ({"file": ("a.wav", b"x"), "model": (None, WHISPER), "stream": (None, "perhaps")}, "stream"),
        ({"file": ("a.wav", b"x"), "model": (None, WHISPER), "prompt": (None, "x" * 20_000)}, "prompt"),
        ({"file": ("a.wav", b"x"), "model": (None, b"\xff")}, "model"),
    ],
)
async def test_a_form_that_cannot_be_read_is_refused_by_the_name_of_its_field(start, upstream, kit, body, param):
    import httpx

    gateway = await start()
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{gateway.base_url}/audio/transcriptions", files=body, headers={"authorization": f"Bearer {kit.KEY}"}
        )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not upstream.requests


async def test_a_body_that_is_no_form_or_no_json_is_refused(start, kit):
    gateway = await start()
    for path in ("/v1/audio/transcriptions", "/v1/audio/speech"):
        kind = "multipart/form-data; boundary=x" if path.endswith("speech") else "application/json"
        answer = await gateway.ask(kit.request(b"{}", {"Content-Type": kind}, path=path))
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    cut = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1'
    head = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = await gateway.ask(kit.request(cut, head, path="/v1/audio/transcriptions"))
    assert answer.status == 400 and "ends too early" in answer.error["message"]


async def test_a_large_file_is_taken_whatever_its_bytes_look_like(start, upstream):
    upstream.always(upstream.whole({"text": "hi", "duration": 1}))
    gateway = await start(target={"model": "other"})
    sound = b'{[:,"' * (1 << 20)  # five mebibytes, which as JSON would hold millions of fields
    await hear(gateway, sound)
    assert sound in upstream.requests[0].body
    assert gateway.requests()[0].usage == Usage(milliseconds=1_000)


# speech


async def test_speech_comes_as_sound_and_costs_its_characters(start, upstream):
    sound = bytes(range(256)) * 100
    upstream.always(other(sound, "audio/mpeg"))
    gateway = await start()
    text = "Grüße, 世界"
    answer = await gateway.sdk().audio.speech.create(model=VOICE, voice="alloy", input=text)
    assert answer.content == sound and answer.response.headers["content-type"] == "audio/mpeg"
    assert upstream.requests[0].json == {"model": VOICE, "voice": "alloy", "input": text}
    assert upstream.requests[0].headers["accept"] == "*/*"
    [record] = gateway.requests()
    assert (record.api, record.operation, record.usage) == ("audio.speech", "speech", Usage(characters=9))
    assert (record.cost_pico_usd, record.count_method) == (9 * 15_000_000, "exact")
    assert record.response_bytes > len(sound) and not record.stream


async def test_speech_streamed_by_the_sdk_is_the_same_sound(start, upstream):
    upstream.always(other(b"sound" * 1000, "audio/wav"))
    gateway = await start()
    speech = gateway.sdk().audio.speech.with_streaming_response
    async with speech.create(model=VOICE, voice="alloy", input="hi") as answer:
        assert b"".join([piece async for piece in answer.iter_bytes()]) == b"sound" * 1000


# moderations


async def test_a_moderation_is_paid_by_the_request_and_needs_no_model(start, upstream):
    upstream.always(upstream.whole({"id": "m", "model": "omni-2", "results": [{"flagged": True}]}))
    gateway = await start()
    answer = await gateway.sdk().moderations.create(input=["one", "two"])
    assert answer.results[0].flagged
    [record] = gateway.requests()
    assert (record.api, record.operation, record.model) == ("moderations", "moderation", JUDGE)
    assert (record.usage, record.cost_pico_usd, record.model_version) == (
        Usage(requests=1),
        2 * PICO // 10_000,
        "omni-2",
    )


@pytest.mark.parametrize(
    ("card", "cost", "basis"),
    [
        ({"usd_per_mtok": {"input_text": "1"}, "usd_per_request": "0.001"}, PICO // 1000, "price_card"),
        ({"usd_per_unit": {"request": "0"}}, 0, "price_card"),
        ({"usd_per_mtok": {"input_text": "1", "output_text": "1"}}, None, "unpriced"),
        (None, None, "unpriced"),
    ],
)
async def test_a_fee_or_a_price_of_zero_is_a_price_and_none_is_none(start, upstream, card, cost, basis):
    upstream.always(upstream.whole({"results": []}))
    gateway = await start([] if card is None else [{"model": JUDGE, "version": "x/1", **card}])
    await gateway.sdk().moderations.create(input="x")
    [record] = gateway.requests()
    assert (record.cost_pico_usd, record.cost_basis) == (cost, basis)
    assert record.unpriced_leaves == (["requests"] if card is not None and cost is None else [])


# limits


@pytest.mark.parametrize(("left", "drawn"), [("0.1199", 0), ("0.12", 1), ("0.24", 2)])
async def test_a_hard_budget_refuses_before_the_server_is_asked(start, upstream, left, drawn):
    upstream.always(upstream.whole(images(3)))
    gateway = await start(budgets=[hard(left)])
    asked = {"n": 3, "quality": "standard", "size": "1024x1024"}
    for _ in range(drawn):
        await draw(gateway, **asked)
    with pytest.raises(openai.RateLimitError) as refused:
        await draw(gateway, **asked)
    assert refused.value.code == "insufficient_quota" and len(upstream.requests) == drawn
    assert sum(record.charged_pico_usd or 0 for record in gateway.requests()) == drawn * 12 * PICO // 100


async def test_an_open_quality_reserves_the_highest_price_and_pays_its_own(start, upstream):
    upstream.always(upstream.whole(images(1)))
    gateway = await start(budgets=[hard("0.12")])
    await draw(gateway)  # 0.12 reserved, 0.04 paid
    with pytest.raises(openai.RateLimitError):
        await draw(gateway)
    await draw(gateway, quality="standard", size="1024x1024")
    assert [record.charged_pico_usd for record in gateway.requests() if record.outcome == "ok"] == [4 * PICO // 100] * 2


async def test_sound_is_reserved_by_its_size_and_settled_by_its_length(start, upstream):
    upstream.always(upstream.whole({"text": "hi", "duration": 30}))
    size = 480_000
    reserved = size / 4 * 1.5 / 1000 * 0.0001  # four bytes a millisecond at first, with a margin of half
    gateway = await start(budgets=[hard(f"{reserved + 0.00001:.6f}")])
    await hear(gateway, b"\0" * size)
    [record] = gateway.requests()
    assert math.isclose(reserved, 0.018) and record.charged_pico_usd == record.cost_pico_usd == 30 * 100_000_000
    with pytest.raises(openai.RateLimitError):  # what is left, 0.015, is less than what such a file needs
        await hear(gateway, b"\0" * size * 10)


async def test_an_unpriced_model_is_refused_under_a_budget_and_a_failure_costs_nothing(start, upstream):
    gateway = await start([CARDS[1]], budgets=[hard("1")])
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await draw(gateway)
    assert refused.value.code == "unpriced_model"
    upstream.always(upstream.whole({"error": {"message": "too long", "type": "invalid_request_error"}}, 400))
    with pytest.raises(openai.BadRequestError, match="too long"):
        await hear(gateway)
    assert [record.charged_pico_usd or 0 for record in gateway.requests()] == [0, 0]


async def test_rates_and_keys_hold(start, upstream, kit):
    upstream.always(upstream.whole({"results": []}))
    rule = {"id": "r", "tenant": "acme", "level": "tenant", "metric": "requests", "amount": 2, "window": "hour"}
    key = {"key": kit.KEY, "tenant": "acme", "id": "key_1", "endpoints": ["moderations"], "models": [JUDGE, VOICE]}
    gateway = await start(limits=[rule], keys=[key])
    for _ in range(2):
        await gateway.sdk().moderations.create(input="x")
    with pytest.raises(openai.RateLimitError):
        await gateway.sdk().moderations.create(input="x")
    with pytest.raises(openai.PermissionDeniedError, match="may not use audio.speech; it may use moderations"):
        await gateway.sdk().audio.speech.create(model=VOICE, voice="a", input="x")
    with pytest.raises(openai.NotFoundError):
        await gateway.sdk().moderations.create(model=IMAGE, input="x")


# what goes wrong


@pytest.mark.parametrize(
    ("ask", "sent"),
    [
        (draw, other(b"{}", "application/json")),
        (draw, other(b"<html>", "text/html")),
        (hear, other(b'{"no":1}', "application/json")),
        (hear, other(b"{", "application/json")),
    ],
)
async def test_an_answer_that_is_none_is_the_servers_fault(start, upstream, ask, sent):
    upstream.always(sent)
    gateway = await start()
    with pytest.raises(openai.InternalServerError) as failed:
        await ask(gateway)
    assert failed.value.status_code == 502
    record = gateway.requests()[-1]
    assert record.outcome == "error"


async def test_sound_that_is_an_error_in_json_is_no_sound(start, upstream):
    upstream.always(other(b'{"error":{"message":"no voice"}}', "application/json"))
    gateway = await start()
    with pytest.raises(openai.InternalServerError):
        await gateway.sdk().audio.speech.create(model=VOICE, voice="a", input="x")


async def test_compressed_sound_is_refused(start, upstream):
    head = b"HTTP/1.1 200 X\r\ncontent-type: audio/wav\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx"
    upstream.always(head)
    gateway = await start()
    with pytest.raises(openai.InternalServerError):
        await gateway.sdk().audio.speech.create(model=VOICE, voice="a", input="x")


async def test_a_target_that_takes_chats_alone_says_so(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((IMAGE, [kit.scripted()])))
    with pytest.raises(openai.BadRequestError, match="a target of kind openai_http"):
        await draw(gateway)


async def test_unknown_paths_name_what_is_served(start, kit):
    gateway = await start()
    answer = await gateway.ask(kit.request({"model": IMAGE}, path="/v1/images/edits"))
    assert answer.status == 404 and "POST /v1/images/generations" in answer.error["message"]


async def test_guardrails_see_the_texts_and_change_no_form(start, upstream):
    stage = {"name": "words", "detector": "deny", "settings": {"keywords": ["secret"]}, "action": "redact"}
    upstream.always(upstream.whole(images(1)))
    gateway = await start(guardrails=[{"name": "g", "stages": [stage]}])
    await draw(gateway, prompt="a secret cat")
    assert "secret" not in json.loads(upstream.requests[0].body)["prompt"]
    with pytest.raises(openai.BadRequestError, match="passed on as it is"):
        await hear(gateway, prompt="a secret")
    assert len(upstream.requests) == 1


CARD = "4111 1111 1111 1111"


@pytest.mark.parametrize(
    ("action", "sent", "format", "left"),
    [
        (
            "redact",
            other(b'{"text":"pay %b","words":[{"word":"4111"}]}' % CARD.encode(), "application/json"),
            "json",
            "pay [card]",
        ),
        ("redact", other(b"pay %b\n" % CARD.encode(), "text/plain"), "text", "pay [card]\n"),
        ("block", other(b'{"text":"pay %b"}' % CARD.encode(), "application/json"), "json", ""),
        ("flag", other(b'{"text":"pay %b"}' % CARD.encode(), "application/json"), "json", f"pay {CARD}"),
        ("redact", other(b'{"text":"pay","words":[]}', "application/json"), "json", "pay"),
    ],
)
async def test_a_transcript_is_inspected_once_it_is_whole(start, upstream, action, sent, format, left):
    stage = {
        "name": "cards",
        "detector": "pii",
        "settings": {"kinds": ["card"]},
        "direction": "output",
        "action": action,
    }
    upstream.always(sent)
    gateway = await start(guardrails=[{"name": "g", "stages": [stage]}])
    heard = await hear(gateway, response_format=format)
    assert (heard if format == "text" else heard.text) == left
    [record] = gateway.requests()
    assert record.outcome == "ok" and record.verdicts == ([f"output/cards/{action}:card=1"] if left != "pay" else [])
    assert (getattr(heard, "words", None) is not None) == (left == "pay")


async def test_a_transcript_that_may_have_to_change_does_not_come_in_pieces(start, upstream):
    stage = {"name": "cards", "detector": "pii", "direction": "output", "action": "redact"}
    gateway = await start(guardrails=[{"name": "g", "stages": [stage]}])
    with pytest.raises(openai.BadRequestError, match="leave out stream") as refused:
        await hear(gateway, stream=True)
    assert (refused.value.code, upstream.requests) == ("request_not_allowed", [])


async def test_entries_of_a_forms_lists_are_seen_by_guardrails(start, upstream):
    stage = {"name": "words", "detector": "deny", "settings": {"keywords": ["secret"]}}
    gateway = await start(guardrails=[{"name": "g", "stages": [stage]}])
    with pytest.raises(openai.BadRequestError) as refused:
        await hear(gateway, extra_body={"hints": ["a", "secret"]})
    assert (refused.value.code, upstream.requests) == ("content_blocked", [])
