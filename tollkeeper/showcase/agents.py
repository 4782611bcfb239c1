"""The demo's coding agents: sessions with turns, tool calls and a growing cached prefix; one session loops."""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord

_MODEL: Final = "hosted-large"
_PICO_PER_TOKEN: Final = (2_500_000, 1_250_000, 10_000_000)  # input, cached input, output
_SESSIONS: Final = 48
_TODAY: Final = 12  # sessions of the last day; the others are in the twelve days before
_LOOPING: Final = 5  # the session that repeats one tool call
_WORK: Final = (
    ("github.com/acme/shop", "checkout-retries", "418"),
    ("github.com/acme/shop", "search-filters", "421"),
    ("github.com/acme/ranking", "feature-store", "77"),
)
_DEVELOPERS: Final = ("ada", "grace", "linus", "barbara")
_TOOLS: Final = ("Read", "Edit", "Bash", "Grep")
_MS: Final = 10**6


def agent_turns(
    source: random.Random, now: datetime, keys: Mapping[tuple[str, str], str], prefix: str
) -> list[RequestRecord]:
    """Return records of the turns of acme's search team's agent sessions in the two weeks before `now`."""
    turns: list[RequestRecord] = []
    for number in range(_SESSIONS):
        repo, branch, pull = _WORK[number % len(_WORK)]
        days = 0.0 if number < _TODAY else source.uniform(1, 12)
        begin = now - timedelta(days=days, seconds=source.uniform(3_600, 85_000))
        tags = {"repo": repo, "branch": branch, "pr": pull, "agent": "reviewer" if number % 4 == 3 else "main"}
        who = Identity(
            f"{prefix}acme", "search", "web", keys.get(("acme", "search"), "key_demo"),
            _DEVELOPERS[number % len(_DEVELOPERS)], tags,
        )  # fmt: skip
        turns += _session(source, number, int(begin.timestamp() * 1_000) * _MS, who)
    return turns


def _session(source: random.Random, number: int, at: int, who: Identity) -> list[RequestRecord]:
    turns: list[RequestRecord] = []
    context = source.randrange(9_000, 16_000)  # the prompt starts with tools and instructions
    marks = [source.getrandbits(31), source.getrandbits(31)]
    cached = 0
    for turn in range(source.randrange(6, 18)):
        is_stuck = number == _LOOPING and turn >= 3
        tool = "Bash" if is_stuck else source.choice(_TOOLS)
        mark = 4_711 if is_stuck else source.getrandbits(31)
        marks.append(source.getrandbits(31))
        fresh, produced = context - cached, int(source.lognormvariate(4.6, 0.5)) + 20
        gaps = [max(int(source.lognormvariate(0, 0.25) * 1_500), 1) for _ in range(produced - 1)]
        ttft = int((180 + fresh * 0.06) * source.lognormvariate(0, 0.25) * _MS)
        cost = sum(tokens * rate for tokens, rate in zip((fresh, cached, produced), _PICO_PER_TOKEN, strict=True))
        duration = ttft + sum(gaps) * 10_000
        turns.append(
            RequestRecord(
                request_id=uuid7(at).bytes,
                started_at_ns=at,
                duration_ns=duration,
                who=who,
                api="messages",
                outcome="ok",
                status=200,
                finish_reason="tool_calls",
                stream=True,
                requested_model=_MODEL,
                model=_MODEL,
                provider="openai",
                pool="hosted",
                replica="eu-north",
                gateway="gw-1",
                ttft_ns=ttft,
                admission_ns=source.randrange(30_000, 90_000),
                gaps=pack_gaps(gaps),
                gap_clock="gateway",
                usage=Usage(input_text=fresh, cache_read_text=cached, output_text=produced),
                count_method="reported",
                cost_pico_usd=cost,
                cost_basis="price_card",
                price_version=f"{_MODEL}/showcase",
                charged_pico_usd=cost,
                max_tokens=8_192,
                request_bytes=context * 4,
                response_bytes=produced * 240,
                conversation_id=f"session-{number:02d}",
                tool_calls=1,
                tools=[tool],
                tool_marks=[mark],
                prompt_marks=list(marks),
            )
        )
        cached = context
        context += produced + source.randrange(200, 2_500)
        at += duration + source.randrange(2_000, 25_000) * _MS
    return turns
