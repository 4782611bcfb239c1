"""A model server that ignores max_tokens: tokens delivered beyond the allowance, and the overdraft that is recorded.

Each request has a tenant of its own. The allowance is the caller's max_tokens, what a hard budget pays for, or what is
left of a token limit. The server makes 300 tokens in six patterns: in one burst, one each 30 ms, eight a chunk, split
at any byte, in one giant chunk, and in one burst without a report of its usage. It also makes one whole answer.
"""

import asyncio
import re
from typing import Any, Final

from bench.regressions.streams._ignoring import PATTERNS, WORDS, Stage, delivered, played
from bench.report import Report
from contracts.recording.records import RequestRecord
from tests.gateway.model_server import Upstream

_MOST: Final = 20
_HONOURED: Final = 40
_TOKEN_LIMIT: Final = 60
_SMALL: Final = {"amount_usd": "0.0001"}
_LARGE: Final = {"amount_usd": "1"}
_REPORTED: Final = ("burst", "several", "giant")  # whose report comes before the stream can be ended
_CLIPPED: Final = re.compile(r"^x-tollkeeper-max-tokens: (\d+)", re.MULTILINE | re.IGNORECASE)
# What bounds the answer: the tenant's rules, and the caller's max_tokens.
_BOUNDS: Final[dict[str, tuple[dict[str, Any], int | None]]] = {
    "caller": ({}, _MOST),
    "caller-and-budget": ({"budget": _LARGE}, _MOST),
    "caller-and-limit": ({"limit": {"amount": 100_000}}, _MOST),
    "budget": ({"budget": _SMALL}, None),
    "limit": ({"limit": {"amount": _TOKEN_LIMIT}}, None),
}


def measure(report: Report) -> None:
    """Measure what is delivered, recorded and cut."""
    beyond, differences, early, whole, streams = asyncio.run(_measured())
    n = len(PATTERNS) * len(_BOUNDS)
    report.add("allowance_tokens_beyond", beyond, "tokens", must=0, better="lower", n=n)
    report.add("allowance_overdraft_difference", differences, "tokens and pico-USD", must=0, better="lower", n=streams)
    report.add("allowance_whole_answers_short", whole, "tokens", must=0, better="lower", n=2)
    report.add("allowance_streams_cut_early", early, "streams", must=0, better="lower", n=n)


async def _measured() -> tuple[int, int, int, int, int]:
    tenants = {
        f"{kind}-{bound}-{pattern}": rules
        for kind in ("ignoring", "honouring")
        for pattern in PATTERNS
        for bound, (rules, _) in _BOUNDS.items()
    }
    tenants |= {"whole-budget": {"budget": _SMALL}, "whole-caller": {}}
    async with Stage(tenants) as stage:
        script = stage.upstream.script
        for pattern in PATTERNS:
            for bound in _BOUNDS:
                script[f"ignoring-{bound}-{pattern}"] = played(pattern, (), WORDS, "stop")
                script[f"honouring-{bound}-{pattern}"] = played(pattern, (), WORDS[: _honoured(bound)], "length")
        script["whole-budget"] = script["whole-caller"] = (
            Upstream.whole(Upstream.completion(" ".join(WORDS), 10, 300)),
        )
        asked = {tenant: _ask(stage, tenant) for tenant in tenants}
        answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        records = await stage.records()
    beyond = differences = early = whole = 0
    for tenant, (head, body) in answers.items():
        got = delivered(body, WORDS)
        kind, _, rest = tenant.partition("-")
        bound = rest.rpartition("-")[0]
        if kind == "honouring":
            early += "ended_by" in body or got != _honoured(bound)
            continue
        record = records[tenant]
        if kind == "whole":
            whole += len(WORDS) - got
        else:
            clipped = _CLIPPED.search(head)
            most = _MOST if bound.startswith("caller") else int(clipped[1]) if clipped else _TOKEN_LIMIT
            beyond += max(got - most, 0)
        if kind == "whole" or rest.rpartition("-")[2] in _REPORTED:
            differences += abs(len(WORDS) - (record.usage.output_tokens or 0))
        differences += _difference(record, got if kind == "ignoring" else _allowed(head))
    return beyond, differences, early, whole, len(answers) - len(PATTERNS) * len(_BOUNDS)


async def _ask(stage: Stage, tenant: str) -> tuple[str, str]:
    kind, _, rest = tenant.partition("-")
    if kind == "whole":
        return await stage.ask(tenant, **({"max_tokens": _MOST} if rest == "caller" else {}))
    bound = rest.rpartition("-")[0]
    most = _BOUNDS[bound][1]
    if most is None:
        return await stage.ask(tenant, stream=True)
    return await stage.ask(tenant, stream=True, max_tokens=most if kind == "ignoring" else _honoured(bound))


def _honoured(bound: str) -> int:
    """Return how many tokens a server makes that honours what it was told, at most what the rules pay for."""
    return _HONOURED if bound.startswith("caller") else 10


def _allowed(head: str) -> int:
    clipped = _CLIPPED.search(head)
    return _MOST if clipped is None else int(clipped[1])


def _difference(record: RequestRecord, allowed: int) -> int:
    """Return by how much a record's overdraft is not what was used beyond the allowance, in tokens and in money."""
    made, cost = record.usage.output_tokens, record.cost_pico_usd
    assert made is not None and cost is not None
    tokens = abs(made - allowed - (record.overdraft_tokens or 0))
    return tokens + abs(cost - (record.charged_pico_usd or 0) - (record.overdraft_pico_usd or 0))
