"""A pool's first_token_seconds holds for answers that are not streamed, and changes nothing of what they say.

A target that takes the request and never answers stands before one that does, in a pool and in a route. A target that
makes a token every 0.3 s takes three times the bound for its answer. Answers in the shapes of known servers are asked
for whole through a pool with the bound, and compared with the same answers sent whole.
"""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any, Final

import httpx

from bench.regressions.answer_shapes import SHAPES, AnswerShape
from bench.regressions.model_servers import END, HEAD, ModelServer, Write, completion, gateway, piece, target, whole
from bench.report import Report

_BOUND_SECONDS: Final = 1.0
_PIECES: Final = 10
_MESSAGES: Final = [{"role": "user", "content": "Hello"}]


def measure(report: Report) -> None:
    """Add the seconds beyond the bound, the progressing answers that were cut, and the answers that differ."""
    asyncio.run(_measure(report))


async def _measure(report: Report) -> None:
    servers = ModelServer(_hang), ModelServer(_answer), ModelServer(_progress)
    shaped = {shape.name: ModelServer(_shaped(shape)) for shape in SHAPES}
    for server in (*servers, *shaped.values()):
        await server.start()
    hanging, ready, progressing = servers
    failures = {"first_token_seconds": _BOUND_SECONDS}
    pools: list[dict[str, Any]] = [
        {"name": "pool", "targets": [target("hanging", hanging.url, weight=1000), target("ready", ready.url)]},
        {"name": "hangs", "targets": [target("hangs", hanging.url)]},
        {"name": "answers", "targets": [target("answers", ready.url)]},
        {"name": "progresses", "targets": [target("progresses", progressing.url)]},
        *[{"name": name, "targets": [target(name, server.url)]} for name, server in shaped.items()],
    ]
    pools = [{**pool, "failures": failures, "policy": "round_robin"} for pool in pools]
    route = {"name": "route", "choose": [{"model": "hangs"}], "fallbacks": [{"model": "answers"}]}
    try:
        async with gateway(pools, [route]) as client:
            beyond = [await _seconds(client, name) - _BOUND_SECONDS for name in ("pool", "route")]
            count = 2 if report.quick else 5
            answered = await asyncio.gather(*[_says(client, "progresses") for _ in range(count)])
            cut = sum([said != "word " * _PIECES for said in answered])
            differ = sum([not await _is_same(client, shape) for shape in SHAPES])
    finally:
        for server in (*servers, *shaped.values()):
            await server.stop()
    report.add("first_token_beyond_bound", max(beyond), "s", must=1.0, better="lower", n=len(beyond))
    report.add("first_token_progressing_cut", cut, "answers", must=0, better="lower", n=count)
    report.add("first_token_answers_that_differ", differ, "answers", must=0, better="lower", n=len(SHAPES))


async def _seconds(client: httpx.AsyncClient, model: str) -> float:
    """Return how long a whole chat takes until it is answered; if it is not, as long as the client waits."""
    began = time.monotonic()
    with suppress(httpx.HTTPError):
        reply = await client.post("/v1/chat/completions", json={"model": model, "messages": _MESSAGES})
        if reply.status_code == 200:
            return time.monotonic() - began
    return float(client.timeout.read or 0.0)


async def _says(client: httpx.AsyncClient, model: str) -> str:
    with suppress(httpx.HTTPError, LookupError, ValueError):
        reply = await client.post("/v1/chat/completions", json={"model": model, "messages": _MESSAGES})
        return str(reply.json()["choices"][0]["message"]["content"])
    return ""


async def _is_same(client: httpx.AsyncClient, shape: AnswerShape) -> bool:
    body: dict[str, Any] = {"model": shape.name, **shape.request}
    body |= {"prompt": "Hello"} if shape.path == "/v1/completions" else {"messages": _MESSAGES}
    with suppress(httpx.HTTPError, ValueError):
        reply = await client.post(shape.path, json=body)
        return reply.status_code == 200 and json.loads(reply.content) == shape.whole
    return False


async def _hang(body: dict[str, Any], write: Write) -> None:
    await asyncio.Event().wait()


async def _answer(body: dict[str, Any], write: Write) -> None:
    if not body.get("stream"):
        await write(whole(completion("Hi", 1)))
        return
    await write(HEAD + piece(_chunk("Hi")) + piece(_chunk(finish="stop")) + END)


async def _progress(body: dict[str, Any], write: Write) -> None:
    if not body.get("stream"):
        await asyncio.sleep(_PIECES * 0.3)
        await write(whole(completion("word " * _PIECES, _PIECES)))
        return
    await write(HEAD)
    for _ in range(_PIECES):
        await write(piece(_chunk("word ")))
        await asyncio.sleep(0.3)
    await write(piece(_chunk(finish="stop")) + END)


def _shaped(shape: AnswerShape) -> Any:
    async def answer(body: dict[str, Any], write: Write) -> None:
        if body.get("stream"):
            await write(HEAD + b"".join(map(piece, shape.chunks)) + END)
        else:  # it was not asked for by a stream, which no bound on tokens can watch
            await write(whole({**shape.whole, "id": "asked-whole"}))

    return answer


def _chunk(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "served-1", "choices": [choice]}
