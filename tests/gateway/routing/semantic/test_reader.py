"""When a prompt is read, and what happens when it cannot be: never an error, never a wait beyond the time given."""

import asyncio
import hashlib

import numpy as np
import pytest

from backends.embedder.base import DIMENSIONS, Embedding
from contracts.api.chat import ChatRequest, ContentPart, Message
from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.errors import EmbedderUnavailable
from contracts.serving.routes import RouteEntry, RouteSpec
from contracts.serving.semantic import ComplexitySpec, IntentSpec, SemanticSpec
from gateway.routing.semantic.prompt_text import prompt_text
from gateway.routing.semantic.reader import SemanticReader


class WordEmbedder:
    """A vector for every text: texts that begin with the same word are near one another."""

    identity = "words"

    def __init__(self):
        self.fault = ""
        self.failure = None
        self.asked = []
        self.is_stuck = False

    async def embed(self, text, owner, most_tokens=256, within_seconds=None):
        self.asked.append((text, owner, within_seconds))
        if self.failure is not None:
            raise self.failure
        if self.is_stuck:
            await asyncio.Event().wait()
        word, rest = (
            np.random.default_rng(int.from_bytes(hashlib.sha256(part.encode()).digest()[:8])).standard_normal(
                DIMENSIONS
            )
            for part in (text.split()[0], text)
        )
        vector = word + 0.3 * rest
        return Embedding((vector / np.linalg.norm(vector)).astype("<f4").tobytes(), len(text.split()), True)


SPEC = SemanticSpec(
    intents=tuple(
        IntentSpec(name=name, utterances=tuple(f"{name} {number}" for number in range(5))) for name in ("code", "bill")
    )
)


def routes(**semantic):
    return {name: RouteSpec(id=name, choose=(RouteEntry(model="m"),), semantic=spec) for name, spec in semantic.items()}


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
async def reader(embedder):
    made = SemanticReader(embedder, timeout_seconds=0.05)
    yield made
    await made.close()


async def learned(reader, **semantic):
    reader.sync(routes(**semantic))
    await asyncio.gather(*(task for _, task in reader._learning.values()))


async def test_a_prompt_is_read_as_its_routes_examples_teach(reader, embedder):
    await learned(reader, assistant=SPEC)
    reading = await reader.read_text("assistant", SPEC, "code please", "acme")
    assert (reading.state, reading.intent) == ("read", "code") and reading.score > 0.5
    assert embedder.asked[-1] == ("code please", "acme", 0.05)
    reading = await reader.read_text("assistant", SPEC, "nothing of the kind", "acme")
    assert (reading.state, reading.intent) == ("abstained", None) and reading.score is not None
    assert reader.readings == {("assistant", "read"): 1, ("assistant", "abstained"): 1}
    status = reader.status()["assistant"]
    assert status["state"] == "ready" and status["accuracy"] == 1 and reader.fault == ""


async def test_no_text_needs_no_embedder(reader, embedder):
    await learned(reader, assistant=SPEC)
    embedder.asked.clear()
    assert (await reader.read_text("assistant", SPEC, "", "acme")).state == "no_text"
    assert embedder.asked == []


async def test_what_is_not_learned_yet_is_loading_and_is_learned(reader):
    assert (await reader.read_text("assistant", SPEC, "code", "acme")).state == "loading"
    await asyncio.gather(*(task for _, task in reader._learning.values()))
    assert (await reader.read_text("assistant", SPEC, "code", "acme")).intent == "code"


async def test_a_prompt_waits_no_longer_than_it_may(reader, embedder):
    await learned(reader, assistant=SPEC)
    embedder.is_stuck = True
    async with asyncio.timeout(2):
        assert (await reader.read_text("assistant", SPEC, "code", "acme")).state == "late"


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (EmbedderUnavailable("it is gone"), "unavailable"),
        (EmbedderUnavailable("many wait", code="embedder_busy"), "late"),
    ],
)
async def test_where_the_embedder_cannot_the_default_answers(reader, embedder, failure, state):
    await learned(reader, assistant=SPEC)
    embedder.failure = failure
    assert (await reader.read_text("assistant", SPEC, "code", "acme")).state == state


async def test_a_route_that_cannot_be_learned_is_named_as_a_fault(reader, embedder):
    embedder.failure = EmbedderUnavailable("the package is missing")
    embedder.fault = "the package is missing"
    reader.sync(routes(assistant=SPEC))
    await asyncio.sleep(0)
    assert (await reader.read_text("assistant", SPEC, "code", "acme")).state == "unavailable"
    assert reader.fault and reader.status() == {"assistant": {"state": "unavailable"}}


async def test_new_examples_are_learned_and_old_ones_serve_until_then(reader, embedder):
    await learned(reader, assistant=SPEC)
    other = SemanticSpec(
        intents=(IntentSpec(name="code", utterances=("bug a", "bug b", "bug c")), SPEC.intents[1]),
        complexity=ComplexitySpec(),
    )
    reader.sync(routes(assistant=other))
    assert (await reader.read_text("assistant", other, "code please", "acme")).intent == "code"
    await asyncio.gather(*(task for _, task in reader._learning.values()))
    reading = await reader.read_text("assistant", other, "bug please", "acme")
    assert (reading.intent, reading.complexity) == ("code", "simple") or reading.complexity == "complex"
    asked = len(embedder.asked)
    reader.sync(routes(assistant=other))  # nothing has changed
    assert reader._learning == {} and len(embedder.asked) == asked
    reader.sync({})
    assert reader.status() == {} and reader.readings == {}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ChatRequest(model="m", messages=[Message("user", "first"), Message("user", " last ")]), "last"),
        (ChatRequest(model="m", messages=[Message("user", "asked"), Message("assistant", "said")]), "asked"),
        (
            ChatRequest(
                model="m",
                messages=[Message("user", [ContentPart("text", text="a"), ContentPart("text", text="b")])],
            ),
            "a\nb",
        ),
        (ChatRequest(model="m", messages=[Message("user", "a"), Message("user", [ContentPart("image_url")])]), "a"),
        (ChatRequest(model="m", messages=[Message("system", "be kind")]), ""),
        (CompletionRequest(model="m", prompt="go on"), "go on"),
        (CompletionRequest(model="m", prompt=["one", "two"]), "one"),
        (CompletionRequest(model="m", prompt=[1, 2]), ""),
        (EmbeddingRequest(model="m", input="embed me"), "embed me"),
    ],
)
def test_a_request_is_about_what_its_user_said_last(request_, text):
    assert prompt_text(request_) == text
