"""Output tokens that a model server makes beyond a rule's room for one request of many choices; it must make none.

The server honours `max_tokens`. Each case has a rule of its own, with room for far fewer tokens than there are choices.
"""

import asyncio
from typing import Any, Final

from bench.regressions.model_servers import END, HEAD, Json, ModelServer, Write, gateway, piece, target, whole
from bench.report import Report

_ROOM: Final = {"budget": 20, "limit": 50, "usd": 20}  # output tokens, at 1000 USD per million
_PROMPTS: Final = 1024
_CHOICES: Final = 128
_SCOPE: Final[Json] = {"tenant": "acme", "level": "tenant"}
_CHAT: Final[Json] = {"messages": [{"role": "user", "content": "x"}], "n": _CHOICES, "max_tokens": 1}
_COMPLETION: Final[Json] = {"prompt": ["x"] * _PROMPTS, "max_tokens": 1}
_REQUESTS: Final[dict[str, tuple[str, Json]]] = {
    "prompts": ("/v1/completions", _COMPLETION),
    "whole": ("/v1/chat/completions", _CHAT),
    "stream": ("/v1/chat/completions", {**_CHAT, "stream": True}),
}


def measure(report: Report) -> None:
    """Count the tokens beyond the room, and the requests with enough room that are answered within it."""
    asyncio.run(_measure(report))


async def _measure(report: Report) -> None:
    made: list[int] = []

    async def answer(body: Json, write: Write) -> None:
        each, count = body.get("max_tokens") or 1000, _choices_of(body)
        made.append(each * count)
        usage = {"prompt_tokens": 10, "completion_tokens": each * count, "total_tokens": 10 + each * count}
        if not body.get("stream"):
            said: Json = {"text": "word"} if "prompt" in body else {"message": {"role": "assistant", "content": "word"}}
            choices = [{"index": index, "finish_reason": "length", **said} for index in range(count)]
            await write(whole({"id": "x", "created": 1, "model": "m", "choices": choices, "usage": usage}))
            return
        await write(HEAD)
        for index in [index for index in range(count) for _ in range(each)]:
            choice = {"index": index, "delta": {"content": "word "}, "finish_reason": None}
            await write(piece({"id": "x", "choices": [choice]}))
        ends: list[Json] = [{"index": index, "delta": {}, "finish_reason": "length"} for index in range(count)]
        await write(piece({"id": "x", "choices": ends}) + piece({"id": "x", "choices": [], "usage": usage}) + END)

    server = ModelServer(answer)
    await server.start()
    cases = [(rule, name) for rule in _ROOM for name in (*_REQUESTS, "fitting")]
    try:
        pools = [{"name": f"{rule}-{name}", "targets": [target("up", server.url)]} for rule, name in cases]
        async with gateway(pools, rules=_rules(cases)) as client:
            refused = dict.fromkeys(_ROOM, 0)
            for rule, name in cases:
                made.clear()
                path, body = _REQUESTS.get(name, ("/v1/chat/completions", {**_CHAT, "n": 16, "max_tokens": 100}))
                reply = await client.post(path, json={"model": f"{rule}-{name}", **body})
                refused[rule] += reply.status_code == 429
                if name == "fitting":
                    report.add(f"choices_{rule}_fitting_answered", reply.status_code, "HTTP status", must=200)
                beyond = max(sum(made) - _ROOM[rule], 0)
                report.add(f"choices_{rule}_{name}_overspent", beyond, "tokens", must=0, better="lower", n=1)
            for rule, count in refused.items():
                report.add(f"choices_{rule}_refused", count, "requests", must=len(_REQUESTS), n=len(_REQUESTS) + 1)
    finally:
        await server.stop()


def _choices_of(body: Json) -> int:
    prompt = body.get("prompt")
    return (len(prompt) if isinstance(prompt, list) else 1) * (body.get("n") or 1)


def _rules(cases: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a rule and a price for each case's model."""
    rules: dict[str, Any] = {"limits": [], "budgets": [], "prices": []}
    for rule, name in cases:
        model, room = f"{rule}-{name}", _ROOM[rule]
        scope = {**_SCOPE, "id": model, "model": model}
        money = {"amount_usd": str(room / 1000)}
        price = {"input_text": "0", "output_text": "1000"}
        rules["prices"].append({"model": model, "version": model, "usd_per_mtok": price})
        if rule == "budget":
            rules["budgets"].append({**scope, "period": "total", **money})
        elif rule == "usd":
            rules["limits"].append({**scope, "metric": "usd", "window": "minute", **money})
        else:
            rules["limits"].append({**scope, "metric": "output_tokens", "window": "minute", "amount": room})
    return rules
