"""What answered stands in the head of every answer: the model as its target calls it, and which version of it."""

import pytest

from gateway.wire.exchange import served_headers
from tests.backends.llm.engine_fake import FakeHost, builtin_hello

NAMES = ("x-tollkeeper-model", "x-tollkeeper-model-version")


def told(answer) -> tuple[str | None, ...]:
    return tuple(answer.headers.get(name) for name in NAMES)


@pytest.fixture
async def server(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url, model="configured")])))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"model": "served-1", "system_fingerprint": "fp_1"}, ("served-1", "fp_1")),
        ({"model": "served-1"}, ("served-1", None)),
        ({"model": None, "system_fingerprint": None}, ("configured", None)),
    ],
)
async def test_a_server_is_taken_at_its_word_and_else_as_configured(server, upstream, reported, expected):
    upstream.always(upstream.whole({**upstream.completion(), **reported}))
    assert told(await server.chat(model="m")) == expected


async def test_a_stream_says_what_its_first_chunk_says(server, upstream):
    chunks = [upstream.chunk(text, model="served-1", system_fingerprint="fp_1") for text in ("a", "b")]
    upstream.always(upstream.streamed(*chunks, upstream.chunk(finish="stop"), upstream.event(b"[DONE]")))
    assert told(await server.chat(model="m", stream=True)) == ("served-1", "fp_1")


async def test_a_stream_whose_first_chunk_says_nothing_goes_by_the_configuration_and_the_record_is_exact(
    server, upstream
):
    chunks = [upstream.chunk("a"), upstream.chunk("b", model="served-1"), upstream.chunk(finish="stop")]
    upstream.always(upstream.streamed(*chunks, upstream.event(b"[DONE]")))
    assert told(await server.chat(model="m", stream=True)) == ("configured", None)
    assert server.requests()[0].model_version == "served-1"


async def test_embeddings_and_completions_say_it_too(server, upstream):
    upstream.always(upstream.whole({"data": [], "model": "served-2", "system_fingerprint": "fp_2"}))
    embedded = await server.ask(server.request({"model": "m", "input": "a"}, path="/v1/embeddings"))
    upstream.always(upstream.whole({"choices": [{"text": "a"}], "model": "served-3"}))
    completed = await server.complete(model="m")
    assert (told(embedded), told(completed)) == (("served-2", "fp_2"), ("served-3", None))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_says_its_model_and_the_hash_of_its_weights(start_gateway, kit, tmp_path, eventually, stream):
    models = [builtin_hello("tiny-v2", weights_hash="0123456789abcdef")]
    host = await FakeHost(tmp_path / "h.sock", models=models).start()
    target = {"name": "e1", "kind": "engine", "url": host.url, "model": "tiny-v2"}
    gateway = await start_gateway(kit.configuration(("m", [target])))
    await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
    assert told(await gateway.chat(model="m", stream=stream)) == ("tiny-v2", "0123456789ab")
    await host.stop()


async def test_the_target_that_answered_in_the_end_is_the_one_that_is_told(start_gateway, kit, upstream, new_upstream):
    other = await new_upstream()
    upstream.always(upstream.whole({"error": "x"}, status=500))
    other.always(other.whole({**other.completion(), "model": "second"}))
    targets = [kit.http_target(upstream.url, "u1", weight=5), kit.http_target(other.url, "u2")]
    gateway = await start_gateway(kit.configuration(("m", targets)))
    assert told(await gateway.chat(model="m")) == ("second", None)


async def test_a_refusal_names_nothing_that_answered(server):
    assert told(await server.chat(model="unknown")) == (None, None)


@pytest.mark.parametrize("word", ["", "a\r\nset-cookie: b", "gr\u00fcn", "x" * 201, "a\x00b"])
def test_words_that_could_not_stand_in_a_header_are_left_out(word):
    assert served_headers(word, word) == ()


def test_a_name_as_long_as_is_shown_is_shown():
    assert served_headers("x" * 200, "") == ((b"x-tollkeeper-model", b"x" * 200),)
