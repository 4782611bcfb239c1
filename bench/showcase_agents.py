"""Made-up sessions of coding agents for the showcase: turns with tools, a cached prompt that grows, a loop, an edit."""

import random
from collections.abc import Iterator, Mapping
from typing import Final
from zlib import crc32

from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord

MODEL: Final = "hosted-large"
TENANT: Final = "acme"
_PICO_PER_TOKEN: Final = (2_500_000, 1_250_000, 10_000_000)  # input, cached input, output
_SECOND: Final = 10**9
_MS: Final = 10**6
_SESSIONS: Final = 14
_HOURS: Final = 9.0  # in which they began
_REPOS: Final = {
    "github.com/acme/shop": ("main", "checkout-retries", "search-facets"),
    "github.com/acme/warehouse": ("main", "stock-sync"),
    "github.com/acme/mobile": ("release-7",),
}
_DEVELOPERS: Final = ("ada", "grace", "linus", "margaret")
_TOOLS: Final = ("Read", "Read", "Grep", "Edit", "Bash")
_LOOPING: Final = 3  # the number of the session that loops
_EDITED: Final = 1  # ... and of the one whose instructions change


def agent_requests(until_ns: int, keys: Mapping[tuple[str, str], str], prefix: str) -> list[RequestRecord]:
    """Return the turns of all sessions, which end a minute before `until_ns`; the same for the same moment."""
    source = random.Random(11)
    return [record for number in range(_SESSIONS) for record in _session(source, number, until_ns, keys, prefix)]


def _session(
    source: random.Random, number: int, until_ns: int, keys: Mapping[tuple[str, str], str], prefix: str
) -> Iterator[RequestRecord]:
    repo = source.choice(list(_REPOS))
    tags = {"repo": repo, "branch": source.choice(_REPOS[repo])}
    if source.random() < 0.5:
        tags["pr"] = str(source.randrange(400, 480))
    team = source.choice(("search", "support"))
    who = Identity(prefix + TENANT, team, "", keys.get((TENANT, team), "key_demo"), source.choice(_DEVELOPERS), tags)
    at = until_ns - 60 * _SECOND - int(source.uniform(0.3, _HOURS) * 3600 * _SECOND)
    # What the prompt holds, as checksums; the tools and the instructions come first.
    marks = [crc32(b"tools"), crc32(f"instructions of {repo}".encode()), crc32(f"task {number}".encode())]
    seen, prompt = 0, source.randrange(9_000, 16_000)
    for turn in range(source.randrange(6, 24)):
        is_subagent = turn % 7 == 5
        tool, mark = source.choice(_TOOLS), source.randrange(2**31)
        if number == _LOOPING and 4 <= turn < 10:
            tool, mark, is_subagent = "Bash", 4711, False
        if number == _EDITED and turn == 4:
            marks[1], seen = crc32(b"instructions, changed"), 1_500
        made = source.randrange(40, 900)
        usage = Usage(input_text=prompt - min(seen, prompt), cache_read_text=min(seen, prompt), output_text=made)
        by = who.with_caller("", {"agent": "explore"}) if is_subagent else who
        yield _turn(source, at, by, number, usage, (tool, mark), list(marks))
        seen, prompt = prompt, prompt + made + source.randrange(200, 3_000)
        marks += [source.randrange(2**31), source.randrange(2**31)]
        at = min(at + int(source.lognormvariate(3.0, 0.8) * _SECOND), until_ns - 30 * _SECOND)


def _turn(
    source: random.Random,
    at: int,
    who: Identity,
    number: int,
    usage: Usage,
    called: tuple[str, int],
    marks: list[int],
) -> RequestRecord:
    counts = (usage.input_text, usage.cache_read_text, usage.output_text)
    cost = sum(rate * (count or 0) for rate, count in zip(_PICO_PER_TOKEN, counts, strict=True))
    ttft = int(source.lognormvariate(6.3, 0.3) * _MS)
    return RequestRecord(
        request_id=uuid7(at).bytes,
        started_at_ns=at,
        duration_ns=ttft + (usage.output_text or 0) * 12 * _MS,
        who=who,
        api="messages",
        status=200,
        finish_reason="tool_calls",
        stream=True,
        requested_model=MODEL,
        model=MODEL,
        provider="openai",
        pool="hosted",
        replica="eu-west",
        gateway="gw-1",
        ttft_ns=ttft,
        usage=usage,
        count_method="reported",
        cost_pico_usd=cost,
        cost_basis="price_card",
        price_version=f"{MODEL}/showcase",
        charged_pico_usd=cost,
        attempts=1,
        conversation_id=f"session-{number:02d}-{crc32(str(number).encode()):08x}",
        priority="interactive",
        tools=[called[0]],
        tool_marks=[called[1]],
        tool_calls=1,
        prompt_marks=marks,
    )
