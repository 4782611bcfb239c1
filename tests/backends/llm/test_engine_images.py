"""Images in chats for engine hosts: bytes to a model that sees, refused by name everywhere else."""

import base64
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.llm.host_inputs.engine_images import MAX_IMAGE_BYTES, image_of
from backends.llm.host_inputs.engine_prompt import Prompt, prompt_of
from backends.tokenization.tokenizer import PromptFormat
from contracts.engine.wire import Submit
from contracts.errors import InvalidRequest, UnsupportedParameter
from gateway.apis.reading import read_chat
from tests.backends.llm.engine_fake import FakeHost, builtin_hello

TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}[image]{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)
SEEING = builtin_hello(accepts_images=True, chat_template=TEMPLATE, template_hash=sha256(TEMPLATE.encode()).hexdigest())
FORM = PromptFormat(SEEING.tokenizer, TEMPLATE, SEEING.special_tokens)
BYTES = b"\x89PNG, or so"


def data_url(data: bytes = BYTES, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def image(url: Any = None) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url() if url is None else url, "detail": "low"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def body(*parts: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"model": "tiny", "messages": [{"role": "user", "content": list(parts)}]})


async def prompt(*parts: dict[str, Any], hello: Any = SEEING) -> Prompt:
    sent = body(*parts)
    return await prompt_of(read_chat("application/json", sent), sent, hello, FORM)


async def test_images_go_as_bytes_with_their_hashes_and_the_template_says_where():
    found = await prompt(text("see "), image(), text(" and "), image(data_url(b"other", "jpeg")))
    assert found.token_ids == FORM.encode("see [image] and [image]")
    assert [one.data for one in found.images] == [BYTES, b"other"]
    assert [one.sha256 for one in found.images] == [sha256(BYTES).digest(), sha256(b"other").digest()]


async def test_a_large_body_is_read_beside_the_loop_to_the_same_end():
    found = await prompt(text("x"), image(data_url(b"y" * 10_000)))
    assert found.images[0].data == b"y" * 10_000


async def test_a_chat_without_images_is_rendered_as_for_every_model():
    found = await prompt(text("one"), text("two"))
    assert found.token_ids == FORM.encode("one\ntwo") and found.images == ()


async def test_a_model_that_does_not_see_refuses_an_image_by_name():
    with pytest.raises(UnsupportedParameter, match=r"content\[0\] is of type 'image_url'; 'tiny' takes text only"):
        await prompt(image(), hello=builtin_hello())
    with pytest.raises(UnsupportedParameter, match="takes text and images"):
        await prompt({"type": "input_audio", "input_audio": {}})


@pytest.mark.parametrize("url", ["https://example.com/a.png", "file:///etc/passwd", "data:text/plain;base64,eA==", ""])
async def test_nothing_is_fetched(url):
    with pytest.raises(UnsupportedParameter, match="must be a data URL .* nothing is fetched") as raised:
        await prompt(image(url))
    assert raised.value.param == "messages[0].content[0].image_url"


@pytest.mark.parametrize("url", [1, None, "data:image/png;base64,%%%", "data:image/png;base64,"])
async def test_what_is_no_image_is_refused_by_its_place(url):
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(InvalidRequest, match=r"messages\[0\].content\[0\].image_url"):
        await prompt(part)


def test_an_image_has_a_largest_size():
    def stated(size: int) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode({"url": data_url(b"x" * size)}))

    assert len(image_of("m", stated(MAX_IMAGE_BYTES), "here").data) == MAX_IMAGE_BYTES
    with pytest.raises(InvalidRequest, match=f"has {MAX_IMAGE_BYTES + 1} bytes; 1 to {MAX_IMAGE_BYTES}"):
        image_of("m", stated(MAX_IMAGE_BYTES + 1), "here")


async def test_a_chat_has_a_largest_number_of_images():
    assert len((await prompt(*[image()] * 64)).images) == 64
    with pytest.raises(InvalidRequest, match="more than the 64"):
        await prompt(*[image()] * 65)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    made = await FakeHost(tmp_path / "h.sock", models=[SEEING]).start()
    yield made
    await made.stop()


async def test_the_host_is_sent_them_and_their_tokens_are_not_guessed_exactly(host, target, sink, call_of):
    call = call_of(body(text("what is this?"), image()))
    assert await target.count_input(call) is None, "an estimate from the body counts images"
    await target.call(call, sink)
    assert [one.data for one in host.of(Submit)[0].images] == [BYTES]
