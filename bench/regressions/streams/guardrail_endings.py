"""Streams that a guardrail ends, refusals that a cascade must see, and errors that must not name a target.

A real gateway, compiled if the checkout is, in front of a model server that writes its bytes in random pieces. Each
stream holds the blocked words, in one of four APIs, and has to end as its API says. Then whether any circuit breaker
was touched, refusals in the languages that the docs name, and the errors of targets that fail in each way.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from bench.crashing.service import Service
from bench.filtered_streams import MODELS, POLICIES, draw_case, fault_of
from bench.load.processes import free_ports
from bench.refusal_sentences import REFUSALS
from bench.report import Report
from gateway.routing.routes.refusal import begins_as_refusal
from tests.gateway.conftest import Running, http_target
from tests.gateway.model_server import Upstream

_STREAMS: Final = 400
_KEY: Final = "tk-" + "G" * 43
_CHAT: Final = {"messages": [{"role": "user", "content": "hi"}]}
_ASKED: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {**_CHAT, "max_tokens": 9},
    "/v1/responses": {"input": "hi", "store": False},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "q", "documents": ["a"]},
}
_NAMES: Final = ("replica-7", "shard-7", "127.0.0.1", "nowhere", ".sock", "target '", "pool '")


def measure(report: Report) -> None:
    """Play the streams and the failing targets, and count what came out otherwise than it must."""
    seed = 20_261_123
    print(f"guardrail_endings: seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tollkeeper-guard-") as folder:
        right, blamed, leaks, errors = asyncio.run(_run(Path(folder), seed))
    report.add("guardrail_endings_right", right, "streams", must=_STREAMS, n=_STREAMS)
    report.add("guardrail_endings_breakers_touched", blamed, "targets", must=0, better="lower", n=_STREAMS)
    sentences = [sentence for language in REFUSALS.values() for sentence in language]
    unseen = sum(not begins_as_refusal(sentence) for sentence in sentences)
    report.add("guardrail_endings_refusals_unseen", unseen, "sentences", must=0, better="lower", n=len(sentences))
    report.add("guardrail_endings_errors_naming_a_target", leaks, "errors", must=0, better="lower", n=errors)


async def _run(home: Path, seed: int) -> tuple[int, int, int, int]:
    upstream = Upstream()
    await upstream.start()
    port = free_ports(2)
    down = [http_target(f"http://127.0.0.1:{port + 1}/v1", name="replica-7", model="shard-7")]
    away = [{"name": "replica-7", "kind": "engine", "url": "unix:///nowhere/engine-a.sock"}]
    pools = {model: [http_target(upstream.url, name="replica-7", model="shard-7")] for model in (*MODELS, "failing")}
    pools |= {"down": down, "away": away}
    config = {
        "keys": [{"key": _KEY, "tenant": "acme", "id": "key_1"}],
        "pools": [{"name": name, "targets": targets} for name, targets in pools.items()],
        "models": [{"name": name, "pool": name} for name in pools],
        "guardrails": POLICIES,
    }
    path = home / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    settings = {"TOLLKEEPER_GATEWAY_CONFIG": str(path), "TOLLKEEPER_GATEWAY_PORT": str(port)}
    service = Service("gateway", "gateway", home, f"http://127.0.0.1:{port}/ready", settings)
    try:
        await asyncio.to_thread(service.start)
        right = await _play(upstream, port, seed)
        blamed = await asyncio.to_thread(_breakers_touched, home / "gateway.log")
        leaks, errors = await _fail(upstream, port)
    finally:
        service.end()
        await upstream.stop()
    return right, blamed, leaks, errors


async def _play(upstream: Upstream, port: int, seed: int) -> int:
    right = 0
    for number in range(_STREAMS):
        case = draw_case(Random(seed + number))
        upstream.then(*case.pieces)
        body = await _ask(port, case.api, case.body)
        fault = fault_of(case, body)
        right += not fault
        if fault:
            print(f"guardrail_endings: seed {seed + number}, {case.api}: {fault}", file=sys.stderr)
    return right


async def _fail(upstream: Upstream, port: int) -> tuple[int, int]:
    """Return how many errors name a place, of how many."""
    leaks = errors = 0
    ways = [
        Upstream.whole({"error": {"message": "shard-7"}}, status=status) for status in (302, 401, 404, 429, 500, 503)
    ]
    ways += [b"shard-7", Upstream.whole({"detail": "shard-7"})]
    for path, asked in _ASKED.items():
        for reply in (*ways, None):
            for model in ("failing",) if reply is not None else ("down", "away"):
                if reply is not None:
                    upstream.then(reply, Upstream.CLOSE)
                body = (await _ask(port, path, {"model": model, **asked})).decode()
                named = [name for name in _NAMES if name in body]
                errors += '"error"' in body
                leaks += bool(named)
                if named:
                    print(f"guardrail_endings: {path} of {model} names {named}: {body[:200]}", file=sys.stderr)
    return leaks, errors


def _breakers_touched(log: Path) -> int:
    """Return how often the gateway's log says that a target failed, or that a circuit opened."""
    said = log.read_text()
    return said.count("target failed") + said.count("circuit opened")


async def _ask(port: int, path: str, body: dict[str, Any]) -> bytes:
    """Return the body of an answer, without the framing of a stream's."""
    data = Running.request(body, {"Authorization": f"Bearer {_KEY}", "Connection": "close"}, path=path)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        head, _, rest = (await asyncio.wait_for(reader.read(-1), 30)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return _unframed(rest) if b"transfer-encoding: chunked" in head.lower() else rest


def _unframed(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            break
    return body
