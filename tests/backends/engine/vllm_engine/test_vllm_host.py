"""A vLLM engine in a host, on a real socket: the same wire as every engine."""

import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from backends.engine.app import vllm_builder
from backends.engine.base import ModelOrder
from backends.engine.settings import BUILTIN_PATH, EngineHostSettings
from backends.engine.vllm_engine.llm_client import LlmVector
from contracts.engine.wire import Embed
from contracts.errors import ConfigurationError
from tests.backends.engine.host_client import make_submit
from tests.backends.engine.vllm_engine.played_llm import FACTS, tokens


@pytest.fixture
def host_of(start_host, make_engine):
    """Start a host whose one model is a played vLLM; provide a client, and the vLLM."""

    async def start(play=lambda request: (), **options):
        engine, llm = make_engine(play, name="scripted", **options)
        host = await start_host("scripted", build=lambda order: engine)
        return await (await host.client()).ready("scripted"), llm

    return start


async def test_a_generation_goes_over_the_wire(host_of):
    client, llm = await host_of(lambda request: tokens([300, 301, 302]))
    submit = make_submit(1, [5, 6, 7], model="scripted", priority=2)
    finished = await client.run(submit)
    assert finished.finish_reason == "length" and client.token_ids(submit.request_id) == [300, 301, 302]
    assert llm.requests[-1].priority == 2 and llm.requests[-1].name == submit.request_id.hex()
    assert (await client.call("stats", "scripted")).facts["running"] == 0


async def test_embeddings_go_over_the_wire_and_a_generation_is_refused(host_of):
    facts = replace(FACTS, kind="embed", dimensions=2)
    client, llm = await host_of(facts=facts)
    llm.vector = lambda prompt: LlmVector(np.array([1, len(prompt.token_ids)], "<f4").tobytes(), 2)
    answer = await client.embed(Embed(request_id=b"e" * 16, model="scripted", inputs=[[1], [2, 3]]))
    assert np.frombuffer(answer.vectors, "<f4").tolist() == [1, 1, 1, 2] and answer.input_tokens == 3
    too_many = await client.embed(Embed(request_id=b"f" * 16, model="scripted", inputs=[[1]], dimensions=3))
    assert too_many.error_code == "invalid_request" and "gives 1 to 2" in too_many.error_message
    finished = await client.run(make_submit(1, [5], model="scripted"))
    assert "embeds; it does not generate" in finished.error_message


async def test_a_model_that_generates_does_not_embed(host_of):
    client, _ = await host_of(lambda request: tokens([300]))
    answer = await client.embed(Embed(request_id=b"e" * 16, model="scripted", inputs=[[1]]))
    assert "generates; it does not embed" in answer.error_message


async def test_a_vllm_that_dies_fails_its_model_and_every_request_of_it(host_of):
    def die(request):
        if request.name.endswith("2"):
            llm.is_dead = True
        return tokens([300])

    client, llm = await host_of(die)
    finished = await client.run(make_submit(2, [5], model="scripted"))
    assert finished.error_code == "engine_failure" and "has died" in finished.error_message
    await client.until(lambda: client.states("scripted")[-1] == "failed")
    health = await client.call("health", "scripted")
    assert health.facts["state"] == "failed" and "has died" in str(health.facts["failure"])


def test_a_python_without_vllm_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "backends.engine.vllm_engine.async_llm", None)  # as where vLLM is not installed
    settings = EngineHostSettings(engine_kind="vllm", data=tmp_path)
    with pytest.raises(ConfigurationError, match=r"run the host with the one in \.venv-vllm \(make vllm"):
        vllm_builder(settings, threading.Lock())(ModelOrder("m", str(BUILTIN_PATH)))
