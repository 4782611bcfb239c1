"""GPU time on the books: what the records of requests are charged is what the engine's steps were split into."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.recording.records import AttemptRecord, GpuShare, RequestRecord, StepRecord
from tests.gateway.host_process import MODEL, HostProcess

EMBEDDER = "minilm-l6-v2"
WORDS = "bridge river stone arch span road pillar iron cable tower water bank load stream wood".split()


def target(host: HostProcess, name: str) -> dict[str, object]:
    return {"name": name, "kind": "engine", "url": host.url}


@pytest.fixture
async def engine(start_gateway, kit, eventually, engine_host):
    gateway = await start_gateway(
        kit.configuration((MODEL, [target(engine_host, "e1")]), (EMBEDDER, [target(engine_host, "e1")]))
    )
    await eventually(lambda: [one["state"] for one in gateway.gateway.health()["engines"].values()] == ["ready"], 60.0)
    return gateway


def share_ns(share: GpuShare | None) -> int:
    return 0 if share is None else share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns


def booked_ns(records: list[Any]) -> Counter[bytes]:
    """Sum what is charged by request: by its attempts where there were several, else by the request itself."""
    found: Counter[bytes] = Counter()
    for record in records:
        if isinstance(record, AttemptRecord) or (isinstance(record, RequestRecord) and record.attempts <= 1):
            found[record.request_id] += share_ns(record.gpu)
    return found


def computed_ns(records: list[Any], ids: set[bytes]) -> Counter[bytes]:
    """Sum the steps' split by request, of these requests and of those nobody has."""
    found: Counter[bytes] = Counter()
    for record in records:
        if isinstance(record, StepRecord):
            for request_id, part in zip(record.request_ids, record.gpu_ns, strict=True):
                if request_id in ids:
                    found[request_id] += part
    return found


asks = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["chat", "chat", "chat", "prompts", "choices", "embeddings"]),
        "stream": st.booleans(),
        "words": st.integers(1, 120),
        "max_tokens": st.integers(1, 60),
        # When the client leaves: after so many bytes of its answer, or so many milliseconds; never.
        "leaves": st.one_of(
            st.none(), st.tuples(st.just("bytes"), st.integers(1, 3000)), st.tuples(st.just("ms"), st.integers(0, 80))
        ),
    }
)


def body_of(ask: dict[str, Any], seed: int) -> tuple[str, dict[str, Any]]:
    chosen = random.Random(seed)
    text = " ".join(chosen.choices(WORDS, k=ask["words"]))
    if ask["kind"] == "embeddings":
        return "/v1/embeddings", {"model": EMBEDDER, "input": [text, text[::-1]] * 3}
    if ask["kind"] == "prompts":
        return "/v1/completions", {
            "model": MODEL, "prompt": [text, text + " and", "a " + text], "max_tokens": ask["max_tokens"],
            "stream": ask["stream"],
        }  # fmt: skip
    more = {"n": 3} if ask["kind"] == "choices" else {}
    return "/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": ask["max_tokens"],
        "stream": ask["stream"], "temperature": 1.0, **more,
    }  # fmt: skip


async def serve(gateway: Any, ask: dict[str, Any], seed: int) -> None:
    path, body = body_of(ask, seed)
    client = await gateway.connect()
    await client.send(gateway.request(json.dumps(body).encode(), path=path, headers={"Connection": "close"}))
    how, amount = ask["leaves"] or ("bytes", 1 << 30)
    if how == "ms":
        await asyncio.sleep(amount / 1000)
    else:
        read = 0
        while read < amount and (data := await client.reader.read(4096)):
            read += len(data)
    client.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=st.lists(asks, min_size=1, max_size=12), seed=st.integers(0, 1 << 16))
async def test_records_and_steps_agree_to_the_nanosecond_whatever_clients_do(engine, eventually, mix, seed):
    before = len(engine.requests())
    await asyncio.gather(*[serve(engine, ask, seed + place) for place, ask in enumerate(mix)])
    await eventually(lambda: not engine.gateway.admission.in_flight, 30.0)
    ids = {record.request_id for record in engine.requests()[before:]}

    def agree() -> bool:
        records = engine.records()
        charged = Counter({one: ns for one, ns in booked_ns(records).items() if one in ids})
        return +charged == +computed_ns(records, ids)

    await eventually(agree, 10.0)
