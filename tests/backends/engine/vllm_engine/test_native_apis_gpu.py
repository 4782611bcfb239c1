"""Anthropic's Messages and OpenAI's Responses of vLLM's own server, with and without the gateway before it."""

import asyncio
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from backends.engine.settings import BUILTIN_PATH
from bench.gpu_cancelled import journalled
from bench.gpu_sidecar import Process
from contracts.recording.records import RequestRecord

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("nvidia-smi") is None or importlib.util.find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]

KEY = f"tk-{'A' * 43}"
VLLM, GATEWAY = "http://127.0.0.1:18191", "http://127.0.0.1:18190"
MODEL = "native"
MESSAGES: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 24,
    "temperature": 0,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Good morning"}]}],
}
RESPONSES: dict[str, Any] = {
    "model": MODEL,
    "max_output_tokens": 24,
    "temperature": 0,
    "store": False,  # the gateway has no database here
    "input": "Good morning",
}
ASKED = [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)]


@dataclass(frozen=True)
class Answers:
    """By path, whether streamed, and address: status, headers and body. And the gateway's records, by request id."""

    found: dict[tuple[str, bool, str], tuple[int, httpx.Headers, str]]
    records: dict[str, RequestRecord]

    def of(self, path: str, is_stream: bool, address: str) -> str:
        status, _, body = self.found[path, is_stream, address]
        assert status == 200, body
        return body

    def record(self, path: str, is_stream: bool) -> RequestRecord:
        return self.records[self.found[path, is_stream, GATEWAY][1]["x-request-id"].replace("-", "")]


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    found = {}
    with tempfile.TemporaryDirectory(prefix="n") as home:
        folder = Path(home)
        target = {
            "name": "vllm-0",
            "kind": "openai_http",
            "url": f"{VLLM}/v1",
            "settings": {"apis": ["chat", "messages", "responses"]},
        }
        configuration = folder / "gateway.yaml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "keys": [{"key": KEY, "tenant": "A"}],
                    "pools": [{"name": "pool", "targets": [target]}],
                    "models": [{"name": MODEL, "pool": "pool"}],
                }
            )
        )
        words = (
            f"--model {BUILTIN_PATH} --served-model-name {MODEL} --host 127.0.0.1 --port {VLLM.rpartition(':')[2]} "
            "--enforce-eager --max-model-len 2048 --gpu-memory-utilization 0.2 --max-num-seqs 16"
        ).split()
        settings = {
            "TOLLKEEPER_DATA": str(folder / "gateway"),
            "TOLLKEEPER_GATEWAY_CONFIG": str(configuration),
            "TOLLKEEPER_GATEWAY_PORT": GATEWAY.rpartition(":")[2],
            "TOLLKEEPER_COLLECTOR_URL": "http://127.0.0.1:9",
        }
        vllm = Process("vllm", folder, ["-m", "vllm.entrypoints.openai.api_server", *words], {})
        gateway = Process("gateway", folder, ["-m", "gateway"], settings)
        try:
            asyncio.run(vllm.until_answered(f"{VLLM}/health", 300))
            asyncio.run(gateway.until_answered(f"{GATEWAY}/ready", 60))
            with httpx.Client(timeout=60, headers={"authorization": f"Bearer {KEY}"}) as client:
                for path, body in ASKED:
                    for is_stream in (False, True):
                        for address in (VLLM, GATEWAY):
                            asked = {**body, "stream": is_stream}
                            answer = client.post(
                                address + path, json=asked, headers={"anthropic-version": "2023-06-01"}
                            )
                            found[path, is_stream, address] = answer.status_code, answer.headers, answer.text
                bad = {**MESSAGES, "messages": "none"}
                for address in (VLLM, GATEWAY):
                    answer = client.post(f"{address}/v1/messages", json=bad)
                    found["bad", False, address] = answer.status_code, answer.headers, answer.text
        finally:
            gateway.stop()
            vllm.stop()
        records = [one for one in journalled(folder / "gateway" / "journal") if isinstance(one, RequestRecord)]
        yield Answers(found, {one.request_id.hex(): one for one in records})


def events(stream: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in stream.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if lines.get("data", "").startswith("{"):
            found.append((lines.get("event", ""), json.loads(lines["data"])))
    return found


def text_of(path: str, answer: dict[str, Any]) -> str:
    parts = answer["content"] if path == "/v1/messages" else answer["output"][-1]["content"]
    return "".join(part["text"] for part in parts)


def said(stream: list[tuple[str, dict[str, Any]]]) -> str:
    deltas = [event["delta"] for name, event in stream if name in ("content_block_delta", "response.output_text.delta")]
    return "".join(delta if isinstance(delta, str) else delta.get("text", "") for delta in deltas)


@pytest.mark.parametrize("path", [path for path, _ in ASKED])
def test_a_whole_answer_is_vllms_and_its_usage_is_on_the_record(answers: Answers, path: str):
    plain, through = (json.loads(answers.of(path, False, address)) for address in (VLLM, GATEWAY))
    assert text_of(path, through) == text_of(path, plain) != ""
    assert set(through) == set(plain) and through["usage"] == plain["usage"]
    record = answers.record(path, False)
    assert record.outcome == "ok"
    assert (record.usage.input_text or 0) + (record.usage.cache_read_text or 0) == plain["usage"]["input_tokens"]
    assert (record.usage.output_text or 0) + (record.usage.output_reasoning or 0) == plain["usage"]["output_tokens"]


@pytest.mark.parametrize("path", [path for path, _ in ASKED])
def test_a_stream_is_vllms_event_by_event(answers: Answers, path: str):
    plain, through = (events(answers.of(path, True, address)) for address in (VLLM, GATEWAY))
    # vLLM joins tokens that wait for their reader, so how many there are in an event differs from run to run.
    kinds = [[name for name, _ in groupby(name for name, _ in stream)] for stream in (plain, through)]
    assert kinds[0] == kinds[1] != []
    assert said(plain) == said(through) != ""
    assert {name: set(event) for name, event in through} == {name: set(event) for name, event in plain}
    whole = json.loads(answers.of(path, False, VLLM))
    record = answers.record(path, True)
    assert record.outcome == "ok" and record.stream
    assert (record.usage.output_text or 0) + (record.usage.output_reasoning or 0) == whole["usage"]["output_tokens"]


def test_an_error_has_the_apis_shape_and_no_address(answers: Answers):
    status, _, body = answers.found["bad", False, GATEWAY]
    assert status == 400 and json.loads(body)["type"] == "error"
    assert "127.0.0.1" not in body and "vllm-0" not in body
