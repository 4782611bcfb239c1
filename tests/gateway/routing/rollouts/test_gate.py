"""`tollkeeper gate` through a real gateway: an identical copy passes, one with a disturbed layer does not."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from typer.testing import CliRunner

from analytics.comparison.pairs import Answer
from backends.engine.settings import BUILTIN_PATH
from backends.store.columns import arrow_batch
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, PriceBook, PriceCard, price_card
from contracts.recording.names import CONTENT
from contracts.recording.records import ContentRecord
from tests.gateway.conftest import KEY
from tests.gateway.host_process import HostProcess
from tollkeeper.cli import app
from tollkeeper.gate.prompt_sender import PromptSender, highest_cost
from tollkeeper.gate.prompts import Prompt

QUESTIONS = ("What is a bridge?", "Name a river.", "Why does it rain?", "What do bees make?", "Where is the sea?")
WEIGHT = "model.layers.2.mlp.down_proj.weight"


def disturbed(folder: Path) -> Path:
    """Copy the built-in model, with noise as large as the weights themselves in one layer."""
    shutil.copytree(BUILTIN_PATH, folder)
    file = folder / "model.safetensors"
    raw = bytearray(file.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    begin, end = (8 + size + at for at in json.loads(raw[8 : 8 + size])[WEIGHT]["data_offsets"])
    # Its numbers are bfloat16, the upper half of a float32.
    weights = (np.frombuffer(raw[begin:end], "<u2").astype("<u4") << 16).view("<f4")
    noise = np.random.default_rng(1).normal(0, weights.std(), weights.shape).astype("<f4")
    raw[begin:end] = ((weights + noise).view("<u4") >> 16).astype("<u2").tobytes()
    file.write_bytes(raw)
    return folder


@pytest.fixture
async def engine(start_gateway, kit, eventually, engine_host: HostProcess, tmp_path: Path) -> AsyncIterator[Any]:
    """A gateway before one engine host with the incumbent, an identical copy and a disturbed one."""
    copy = Path(shutil.copytree(BUILTIN_PATH, tmp_path / "copy"))
    models = {"old": BUILTIN_PATH, "copy": copy, "disturbed": disturbed(tmp_path / "disturbed")}
    target = {"name": "e", "kind": "engine", "url": engine_host.url}
    gateway = await start_gateway(kit.configuration(*((name, [target]) for name in models)))
    await eventually(lambda: engine_host.serves(gateway), 90.0)
    async with engine_host.with_models(models, kv_mebibytes=112):
        await eventually(lambda: engine_host.serves(gateway, *models), 10.0)
        yield gateway


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "set.jsonl"
    lines = [json.dumps({"prompt": question, "max_tokens": 12}) for question in QUESTIONS]
    path.write_text("\n".join(lines) + "\n\n")
    return path


async def run(gateway, candidate: str, against: str, *more: str) -> tuple[int, Any]:
    """Run the command in a thread, as the gateway runs here. Gives its status and what it printed."""
    url = gateway.base_url.removesuffix("/v1")
    arguments = ["gate", candidate, "--against", against, "--gateway-url", url, "--key", KEY, "--by-words", *more]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    return done.exit_code, json.loads(done.stdout) if "--json" in more else done.output


def measure(report, name):
    return next(one for one in report["measures"] if one["name"] == name)


async def test_an_identical_copy_passes_and_one_with_a_disturbed_layer_is_refused(engine, prompts, tmp_path):
    # Times of three tiny models on one core say nothing of the models.
    options = ["--set", str(prompts), "--data", str(tmp_path), "--json"]
    for name in ("max_ttft_ratio", "max_inter_token_ratio", "max_duration_ratio"):
        options += ["--bound", f"{name}=off"]
    status, report = await run(engine, "copy", "old", *options, "--bound", "min_exact_match=1")
    assert (status, report["passed"], report["compared"]) == (0, True, len(QUESTIONS)), report
    assert measure(report, "exact match")["interval"]["value"] == 1.0
    assert abs(measure(report, "log-probability drop")["interval"]["value"]) < 0.001
    status, report = await run(engine, "disturbed", "old", *options)
    assert (status, report["passed"], report["judged"]) == (1, False, True), report
    worse = {one["name"] for one in report["measures"] if one["verdict"] == "worse"}
    assert {"token agreement", "log-probability drop"} <= worse
    drop = measure(report, "log-probability drop")
    assert drop["interval"]["low"] <= drop["interval"]["value"] <= drop["interval"]["high"]
    assert "at most 0.05 is asked, and it is not kept" in drop["reason"]


async def test_a_longer_dearer_or_failing_candidate_is_refused_and_what_is_not_told_is_not_judged(
    start_gateway, kit, prompts, tmp_path
):
    gateway = await start_gateway(
        kit.configuration(
            ("old", [kit.scripted("o", tokens=8)]),
            ("long", [kit.scripted("l", tokens=12)]),
            ("broken", [kit.scripted("b", fault="error")]),
        )
    )
    options = ["--set", str(prompts), "--data", str(tmp_path), "--json"]
    status, report = await run(gateway, "long", "old", *options)
    assert status == 1
    assert [one["verdict"] for one in report["measures"] if one["name"] == "length ratio"] == ["ok", "worse"]
    assert measure(report, "log-probability drop")["verdict"] == "unknown"
    assert measure(report, "cost ratio")["verdict"] == "unknown", "no price cards here"
    status, report = await run(gateway, "broken", "old", *options)
    assert (status, measure(report, "answered")["interval"]["value"]) == (1, 0.0)
    status, report = await run(gateway, "old", "broken", *options)
    assert (status, report["incumbent_failures"]) == (3, ["upstream_error"])
    status, said = await run(gateway, "old", "old", "--set", str(prompts), "--data", str(tmp_path))
    assert status == 0 and "passed: old may replace old" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give either prompts with --set FILE"),
        (["--set", "FILE", "--recorded", "acme"], "give either prompts with --set FILE"),
        (["--set", "gone.jsonl"], "cannot be read"),
        (["--set", "FILE", "--bound", "speed=1"], "--bound is written NAME=NUMBER"),
        (["--set", "FILE", "--bound", "max_cost_ratio=cheap"], "is neither a number nor off"),
        (["--set", "FILE", "--gateway-url", "http://127.0.0.1:1"], "the gateway does not answer"),
        (["--set", "EMPTY"], "holds no prompts"),
        (["--set", "BROKEN"], "line 2: not JSON"),
        (["--set", "ODD"], "line 1: neither messages nor a prompt"),
    ],
)
def test_what_cannot_be_asked_ends_with_2_and_one_line(prompts, tmp_path, options, words):
    files = {"EMPTY": "\n", "BROKEN": '{"prompt": "a secret"}\n{"prompt": "a sec', "ODD": '{"text": "a secret"}'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [{"FILE": str(prompts), **{name: str(tmp_path / name) for name in files}}.get(one, one) for one in options]
    done = CliRunner().invoke(
        app, ["gate", "a", "--against", "b", "--key", KEY, "--data", str(tmp_path), "--by-words", *given]
    )
    assert (done.exit_code, words in done.output.replace("\n", " ")) == (2, True), done.output
    assert "secret" not in done.output


async def test_what_a_tenant_has_asked_before_is_asked_again_and_one_odd_prompt_costs_no_other_its_measures(
    store, start_gateway, kit, tmp_path
):
    tenant, now = f"tenant-{uuid4().hex[:8]}", datetime.now(UTC)
    records = [
        ContentRecord(
            request_id=uuid4().bytes,
            started_at_ns=int(now.timestamp() - ago) * 10**9,
            tenant=tenant,
            model="old",
            encoding="redacted",
            prompt=json.dumps({"messages": messages}),
        )
        for ago, messages in ((9, [{"role": "user", "content": "hello"}]), (5, [{"role": "nobody", "content": 1}]))
    ]
    writer = store.client("writer")
    writer.insert_arrow("content", arrow_batch(CONTENT, records), deduplication_token=tenant)
    writer.close()
    shutil.copytree(store.data / "secrets", tmp_path / "secrets")
    gateway = await start_gateway(kit.configuration(("old", [kit.scripted("o")]), ("new", [kit.scripted("n")])))
    options = ("--recorded", tenant, "--data", str(tmp_path), "--store-url", store.url, "--json")
    status, report = await run(gateway, "new", "old", *options)
    assert (status, report["prompts"], report["compared"]) == (0, 2, 1), report
    assert report["incumbent_failures"]


async def test_what_a_model_refuses_is_left_out_for_all_prompts_and_what_is_wrong_with_one_prompt_for_none():
    tried = []

    class Scripted(PromptSender):
        async def _try(self, client, prompt, model, drawn):
            tried.append((model, prompt.number, len(drawn)))
            if prompt.number == 0:
                return Answer(error="invalid_request")
            return Answer(error="unsupported_parameter") if model == "plain" and "logprobs" in drawn else Answer()

    asker = Scripted("http://127.0.0.1:1", "key", "run", PriceBook(), max_tokens=9, at_once=1)
    prompts = [Prompt(number, [{"role": "user", "content": "hi"}], {}) for number in range(3)]
    await asker.send_all(prompts, "scored", "plain", lambda done: None)
    assert [size for model, number, size in tried if model == "scored" and number] == [3, 3]
    assert [size for model, number, size in tried if model == "plain" and number] == [3, 1, 1]


def test_an_answer_costs_what_the_dearest_provider_and_region_of_its_model_ask() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)

    def card(version: str, usd: int, **more: Any) -> PriceCard:
        return price_card(NewPrice("m", version, {"input_text": Decimal(usd), "output_text": Decimal(usd)}, **more))

    usage = Usage(input_text=1_000_000, output_text=0)
    of_providers = [card("a", 2, provider="a"), card("b", 3, provider="b", region="eu")]
    others = [card("own", 9, tenant="acme"), card("old", 8, provider="c", valid_to=now)]
    assert highest_cost(PriceBook([*of_providers, *others]), "m", usage, now) == 3.0
    assert highest_cost(PriceBook(others), "m", usage, now) is None
