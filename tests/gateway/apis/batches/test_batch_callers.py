"""Who may make a batch, and with which models: keys, not tokens; engine hosts of our own as well as anything else."""

import time
from dataclasses import replace
from typing import Any

import openai
import pytest

from tests.gateway.apis.batches.batch_kit import chat_line, create, ended, file_of, results
from tests.gateway.host_process import MODEL
from tests.gateway.identity.identity_provider import provider

__all__ = ["provider"]  # a fixture


async def test_a_token_of_an_identity_provider_keeps_files_and_makes_no_batch(gateway, provider):
    directory = gateway.gateway.directory
    directory.snapshot = replace(directory.snapshot, issuers=(provider.spec(),))
    client = gateway.sdk(provider.token(now=time.time()))
    file = await client.files.create(file=file_of([chat_line("a")]), purpose="batch")
    assert (await client.files.retrieve(file.id)).id == file.id
    with pytest.raises(openai.PermissionDeniedError, match="create it with an API key") as refusal:
        await create(client, [chat_line("a")])
    assert refusal.value.code == "key_required"


async def test_a_batch_runs_on_an_engine_host_with_exact_counts(start_gateway, kit, eventually, engine_host):
    target = {"name": "e1", "kind": "engine", "url": engine_host.url}
    gateway = await start_gateway(kit.configuration((MODEL, [target]), ("minilm-l6-v2", [target])))

    def is_ready() -> bool:
        engines = gateway.gateway.health()["engines"]
        return len(engines) == 1 and all(engine["state"] == "ready" for engine in engines.values())

    await eventually(is_ready, 60.0)
    client = gateway.sdk()
    asked: Any = {"model": MODEL, "max_tokens": 8, "temperature": 0}
    lines = [chat_line(f"r{number}", **asked) for number in range(6)]
    lines.append(chat_line("schema", **asked, response_format={"type": "json_object"}))
    done = await ended(client, await create(client, lines), within=60)
    assert done.status == "completed" and done.request_counts.completed == 7 and done.model == MODEL
    answers = await results(client, done.output_file_id)
    records = {record.request_id.hex(): record for record in gateway.requests()}
    for answer in answers.values():
        body = answer["response"]["body"]
        record = records[answer["response"]["request_id"].replace("-", "")]
        assert body["choices"][0]["message"]["content"]
        assert record.count_method == "exact" and record.gpu is not None
        assert record.usage.output_tokens == body["usage"]["completion_tokens"]
    body = {"model": "minilm-l6-v2", "input": ["a bridge", "an arch"]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body}
    done = await ended(client, await create(client, [line], endpoint="/v1/embeddings"), within=30)
    answer = (await results(client, done.output_file_id))["a"]["response"]["body"]
    assert [len(found["embedding"]) for found in answer["data"]] == [384, 384]
    assert done.usage.input_tokens == answer["usage"]["prompt_tokens"] and done.usage.output_tokens == 0
