"""A key's cap on thinking, before a server that ignores it: where streams end, and what whole answers say of it."""

import asyncio
from typing import Final

from bench.regressions.streams._ignoring import PATTERNS, THOUGHTS, WORDS, Stage, delivered, played
from bench.report import Report
from tests.gateway.model_server import Upstream

_CAP: Final = 10
_THOUGHTS: Final = THOUGHTS[:30]
_WORDS: Final = WORDS[:12]


def measure(report: Report) -> None:
    """Measure what is delivered beyond the cap, and whether it was said that it was exceeded."""
    beyond, answered, early, unsaid = asyncio.run(_measured())
    n = len(PATTERNS)
    report.add("thinking_caps_tokens_beyond", beyond, "tokens", must=0, better="lower", n=n)
    report.add("thinking_caps_cut_after_thinking", answered, "streams", must=0, better="lower", n=n)
    report.add("thinking_caps_streams_cut_early", early, "streams", must=0, better="lower", n=n)
    report.add("thinking_caps_whole_answers_unsaid", unsaid, "answers", must=0, better="lower", n=1)


async def _measured() -> tuple[int, int, int, int]:
    names = [f"{kind}-{pattern}" for kind in ("ignoring", "honouring") for pattern in PATTERNS] + ["whole"]
    async with Stage({name: {"key": {"max_thinking_tokens": _CAP}} for name in names}) as stage:
        script = stage.upstream.script
        for pattern in PATTERNS:
            script[f"ignoring-{pattern}"] = played(pattern, _THOUGHTS, _WORDS, "stop")
            script[f"honouring-{pattern}"] = played(pattern, _THOUGHTS[:_CAP], _WORDS, "stop")
        usage = {"prompt_tokens": 10, "completion_tokens": 42, "total_tokens": 52}
        usage |= {"completion_tokens_details": {"reasoning_tokens": 30}}  # type: ignore[dict-item]
        script["whole"] = (Upstream.whole(Upstream.completion(usage=usage)),)
        answers = await asyncio.gather(*[stage.ask(name, stream=name != "whole") for name in names])
        records = await stage.records()
    beyond = answered = early = unsaid = 0
    for name, (head, body) in zip(names, answers, strict=True):
        thoughts, words = delivered(body, _THOUGHTS), delivered(body, _WORDS)
        if name == "whole":
            over = getattr(records[name], "thinking_over_tokens", None)
            unsaid += "x-tollkeeper-thinking-tokens: 30" not in head.lower() or over != 30 - _CAP
        elif name.startswith("ignoring"):
            beyond += max(thoughts - _CAP, 0)
            answered += bool(words) or "thinking_tokens_exceeded" not in body
        else:
            early += thoughts != _CAP or words != len(_WORDS) or "ended_by" in body
    return beyond, answered, early, unsaid
