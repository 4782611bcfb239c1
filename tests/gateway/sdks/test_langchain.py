"""langchain-openai on the torch engine, as most applications use it: chats, streams, tools, structured answers."""

import asyncio
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import SecretStr

from tests.gateway.sdks.conftest import CHAT, EMBEDDER, KEY, TOOLS
from tests.gateway.sdks.test_openai import CITIES, WEATHER, Bridge, check_records

ASKED: Any = [SystemMessage("Be brief."), HumanMessage("What is a bridge?")]


@pytest.fixture
async def clients(monkeypatch):
    """HTTP clients of this test's own: langchain's would be kept for others, beyond this test's loop."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    with httpx.Client() as blocking:
        async with httpx.AsyncClient() as other:
            yield {"http_client": blocking, "http_async_client": other}


@pytest.fixture
def chat(engine, clients):
    """Create a model of langchain's for one of ours."""

    def make(model: str = CHAT, **more: Any) -> ChatOpenAI:
        fields: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "max_retries": 0, **clients, **more}
        return ChatOpenAI(model=model, base_url=engine.base_url, api_key=SecretStr(KEY), **fields)

    return make


async def test_a_chat_is_invoked_and_streamed_blocking_and_not(chat, engine) -> None:
    model = chat()
    whole = await model.ainvoke(ASKED)
    assert whole.text and whole.usage_metadata["output_tokens"] > 5
    assert (await asyncio.to_thread(model.invoke, ASKED)).text == whole.text
    assert "".join([chunk.text async for chunk in model.astream(ASKED)]) == whole.text
    chunks = await asyncio.to_thread(lambda: list(model.stream(ASKED, stream_usage=True)))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    counts = [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata]
    assert sum(counts) == whole.usage_metadata["output_tokens"]
    check_records(engine, 4)


async def test_a_bound_tool_is_called(chat, engine) -> None:
    bound = chat(TOOLS, max_tokens=120).bind_tools(WEATHER, tool_choice="weather")
    for answer in (await bound.ainvoke(ASKED[1:]), await asyncio.to_thread(bound.invoke, ASKED[1:])):
        [call] = answer.tool_calls
        assert call["name"] == "weather" and call["args"]["city"] in CITIES
    left = await chat(TOOLS, max_tokens=12).bind_tools(WEATHER).ainvoke(ASKED[1:])
    assert left.text or left.tool_calls or left.invalid_tool_calls
    check_records(engine, 3)


async def test_a_structured_answer_is_the_type_it_was_asked_as(chat, engine) -> None:
    found = await chat(max_tokens=80).with_structured_output(Bridge).ainvoke(ASKED)
    assert isinstance(found, Bridge)
    check_records(engine, 1)


async def test_it_speaks_the_responses_api_as_well(chat, engine) -> None:
    model = chat(use_responses_api=True)
    whole = await model.ainvoke(ASKED)
    assert whole.text and "".join([chunk.text async for chunk in model.astream(ASKED)]) == whole.text
    check_records(engine, 2)


async def test_documents_and_queries_are_embedded(engine, clients) -> None:
    # Texts as they are: else it would fetch a tokenizer of OpenAI's to cut them with.
    fields: dict[str, Any] = {"check_embedding_ctx_length": False, "max_retries": 0, **clients}
    embeddings = OpenAIEmbeddings(model=EMBEDDER, base_url=engine.base_url, api_key=SecretStr(KEY), **fields)
    documents = await embeddings.aembed_documents(["A bridge spans a river.", "Cheese ripens."])
    query = await asyncio.to_thread(embeddings.embed_query, "A bridge spans a river.")
    assert [len(one) for one in documents] == [384, 384]
    assert query == pytest.approx(documents[0], abs=1e-5)
    check_records(engine, 2, "embeddings")
