"""Model servers that answer in every wrong way: each has its error, costs what it should, and harms nobody else."""

import email.utils
import gzip
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.gateway.model_server import Upstream

REPORTED = "reported an error"  # what the log has of a server's own words, which may repeat a prompt

TOKENS = 1_000_000
LIMIT = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "hour", "amount": TOKENS}
GOOD_TOKENS = 5  # what a good whole reply reports
OUTPUT_CAP = 20


NOTHING_BEGUN = frozenset(
    (
        "upstream_credentials_refused",
        "upstream_rate_limited",
        "upstream_redirected",
        "upstream_rejected",
        "upstream_unreachable",
    )
)


@dataclass(frozen=True)
class Case:
    """What a server sends, and what the client is told: status, code, words of the message."""

    script: Any
    status: int
    code: str
    words: str = ""
    retry_after: str | None = None

    @property
    def is_free(self) -> bool:
        """Whether the server answered with an error status, or was never asked."""
        return self.code in NOTHING_BEGUN or (self.code == "upstream_error" and "status 2" not in self.words)

    @property
    def model(self) -> str:
        """The one that is asked for it: if nothing is meant to time out, one that waits for long."""
        if self.code != "upstream_timeout":
            return "halting" if up.STALL in self.script and self.is_free else "mock"
        return "late" if "before" in self.words else "slow" if "in total" in self.words else "halting"


up = Upstream
OK = up.whole(up.completion())
BROKEN, ERROR = (502, "upstream_broken"), (502, "upstream_error")
EVENTS = b"content-type: text/event-stream\r\n"
HTML = b"<html><body>Bad gateway of nobody's</body></html>"


def whole(head: bytes, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 " + head + b"content-length: %d\r\n\r\n" % len(body) + body


def rate_limited(header: str | None) -> bytes:
    return up.whole({"error": {"message": "slow"}}, 429, headers=f"retry-after: {header}\r\n" if header else "")


def in_seconds(seconds: float) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


def in_an_hour() -> bytes:
    return rate_limited(in_seconds(3600))


# Before the client has seen anything, whether or not it asked for a stream.
BEFORE = {
    "no HTTP": Case((b"\x00\xff not HTTP\r\n\r\n",), *BROKEN, "not valid HTTP/1.1"),
    "HTTP/0.9": Case((b"hello",), *BROKEN, "not valid HTTP/1.1"),
    "HTTP/3": Case((b"HTTP/3.0 200 OK\r\n\r\n",), *BROKEN),
    "a status that is none": Case((b"HTTP/1.1 banana\r\n\r\n",), *BROKEN),
    "a status of 1000": Case((b"HTTP/1.1 1000 X\r\ncontent-length: 0\r\n\r\n",), *BROKEN),
    "closed at once": Case((up.CLOSE,), *BROKEN, "before it replied"),
    "reset at once": Case((up.RESET,), *BROKEN, "before it replied"),
    "half a head": Case((b"HTTP/1.1 200 OK\r\ncontent-ty", 0.01, up.CLOSE), *BROKEN, "before it replied"),
    "a header without a colon": Case((b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",), *BROKEN),
    "a NUL in a header": Case((b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",), *BROKEN),
    "two lengths": Case((b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",), *BROKEN),
    "a length and chunks": Case(
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",), *BROKEN
    ),
    "huge headers": Case((whole(b"200 OK\r\nx: " + b"y" * 100_000 + b"\r\n"),), *BROKEN, "65536"),
    "endless headers": Case((b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n" * 4000] * 5, up.STALL), *BROKEN, "65536"),
    "a flood of interim answers": Case((b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, up.STALL), *BROKEN, "65536"),
    "an upgrade": Case((b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",), *BROKEN),
    "a head that trickles": Case(tuple(x for _ in range(40) for x in (b"HTTP/1.1"[:1], 0.05)), *BROKEN),
    "silence": Case((up.STALL,), 504, "upstream_timeout", "0.2 s before it replied"),
    "200 with HTML": Case((whole(b"200 OK\r\ncontent-type: text/html\r\n", HTML),), *BROKEN),
    "200 with nothing": Case((whole(b"200 OK\r\ncontent-type: application/json\r\n"),), *BROKEN),
    "200 with an error": Case((up.whole({"error": {"message": "overloaded"}}),), *BROKEN),
    "200 with a list": Case((up.whole([]),), *BROKEN),
    "200 with choices of another type": Case((up.whole({"choices": "many"}),), *BROKEN),
    "200 nested deeply": Case((up.whole(b"[" * 100_000),), *BROKEN),
    "200 of bytes that are not UTF-8": Case((up.whole(b'{"choices": [], "model": "\xff"}'),), *BROKEN),
    "204": Case((b"HTTP/1.1 204 No Content\r\n\r\n",), *ERROR, "status 204"),
    "206": Case((up.whole({}, 206),), *ERROR, "status 206"),
    "a redirect": Case(
        (up.whole(b"", 307, headers="location: http://127.0.0.1:1/s3cret\r\n"),), 502, "upstream_redirected", "307"
    ),
    **{
        f"{status} with {name}": Case((up.whole(body, status),), *ERROR, f"status {status}")
        for status in (500, 502, 503, 504)
        for name, body in (("HTML", HTML), ("an error", {"error": {"message": "secret stack trace"}}), ("nothing", b""))
    },
    "400 with HTML": Case((up.whole(HTML, 400),), 400, "upstream_rejected", "(400)"),
    "400 with its reason": Case(
        (up.whole({"error": {"message": "too long"}}, 400),), 400, "upstream_rejected", "too long"
    ),
    "401 with the key in it": Case(
        (up.whole({"error": {"message": "sk-secret is wrong"}}, 401),), 502, "upstream_credentials_refused", "(401)"
    ),
    "429": Case((rate_limited(None),), 429, "upstream_rate_limited", retry_after="1"),
    "429 in seconds": Case((rate_limited("7"),), 429, "upstream_rate_limited", retry_after="7"),
    "429 in part of a second": Case((rate_limited("0.2"),), 429, "upstream_rate_limited", retry_after="1"),
    "429 until a date": Case((in_an_hour,), 429, "upstream_rate_limited", retry_after="about 3600"),
    "429 until a date gone by": Case((rate_limited(in_seconds(-60)),), 429, "upstream_rate_limited", retry_after="1"),
    "429 with garbage": Case((rate_limited("soon"),), 429, "upstream_rate_limited", retry_after="1"),
    "429 until a date that no calendar has": Case(
        (rate_limited("Fri, 31 Dec 99999999999 23:59:59 GMT"),), 429, "upstream_rate_limited", retry_after="1"
    ),
    "429 with less than nothing": Case((rate_limited("-5"),), 429, "upstream_rate_limited", retry_after="1"),
    "429 with no number": Case((rate_limited("nan"),), 429, "upstream_rate_limited", retry_after="1"),
    "429 for ever": Case((rate_limited("1e300"),), 429, "upstream_rate_limited", retry_after="1"),
    "429 until the end of time": Case(
        (rate_limited("Fri, 31 Dec 9999 23:59:59 GMT"),), 429, "upstream_rate_limited", retry_after="1"
    ),
    "an endless error": Case((up.whole(b"x" * 100_000, 500),), *ERROR, "status 500"),
    "half an error": Case((up.whole(HTML, 503)[:-9], 0.01, up.CLOSE), *ERROR, "status 503"),
    "an error, and silence": Case((up.whole(HTML, 500)[:-9], up.STALL), *ERROR, "status 500"),
    "half a refusal": Case((up.whole(HTML, 400)[:-9], 0.01, up.CLOSE), 400, "upstream_rejected", "(400)"),
    "half a 429": Case((rate_limited("7")[:-5], 0.01, up.CLOSE), 429, "upstream_rate_limited", retry_after="7"),
}  # fmt: skip

# Answers that are whole: cut, trickling, or with more than they say.
WHOLE = {
    "fewer bytes than its length": Case((OK[:-3], 0.01, up.CLOSE), *BROKEN, "in the middle of its reply"),
    "fewer bytes, and silence": Case((OK[:-3], up.STALL), 504, "upstream_timeout", "0.2 s between"),
    "half a chunk": Case(
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\nhalf", 0.01, up.CLOSE), *BROKEN, "in the middle"
    ),
    "a chunk size that is none": Case(
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",), *BROKEN, "not valid HTTP/1.1"
    ),
    "a chunk of 16 exabytes": Case(
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{", up.STALL),
        504, "upstream_timeout",
    ),
    "a chunk size of 17 digits": Case(
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{",), *BROKEN
    ),
    "a length of 30 digits": Case((b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 30 + b"\r\n\r\n",), *BROKEN),
    "a body that trickles": Case(
        (OK[:-40], *[x for byte in OK[-40:] for x in (bytes([byte]), 0.06)]), 504, "upstream_timeout", "0.8 s in total"
    ),
    "compressed unasked": Case(
        (whole(b"200 OK\r\ncontent-encoding: gzip\r\n", gzip.compress(json.dumps(up.completion()).encode())),),
        *BROKEN,
        "compressed",
    ),
}  # fmt: skip

# Streams that go wrong before their first event has reached the client.
STREAMS = {
    "JSON in place of a stream": Case((OK,), *BROKEN, "another content type"),
    "no content type": Case((b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",), *BROKEN, "another content type"),
    "no event": Case((up.streamed(),), *BROKEN, "before its answer was complete"),
    "comments and no event": Case((up.streamed(b": ping\n\n"),), *BROKEN, "before its answer was complete"),
    "an error's JSON and no event": Case(
        (up.stream_head() + up.piece(b'{"error":{"message":"overloaded"}}') + up.END,), *BROKEN, REPORTED
    ),
    "an error first": Case(
        (up.streamed(up.event({"error": {"message": "overloaded"}})),), *BROKEN, REPORTED
    ),
    "an error in vLLM's old words": Case(
        (up.streamed(up.event({"object": "error", "message": "overloaded", "code": 500})),), *BROKEN, REPORTED
    ),
    "garbage first": Case((up.streamed(up.event(b"<html>")),), *BROKEN, "not a chunk of an answer"),
    "NULs first": Case((up.streamed(b"data: \0\0\0\n\n"),), *BROKEN, "not a chunk of an answer"),
    "no UTF-8 first": Case((up.streamed(b'data: {"model":"\xff\xfe"}\n\n'),), *BROKEN, "not a chunk of an answer"),
    "keep-alives for ever": Case(
        (up.stream_head(), *[x for _ in range(60) for x in (up.piece(b": ping\n\n"), 0.05)]),
        504, "upstream_timeout", "0.2 s before",
    ),
    "a role and nothing more": Case(
        (up.stream_head(), up.piece(b": ping\n\n"), up.STALL), 504, "upstream_timeout", "0.2 s before"
    ),
    "an event without end": Case(
        (up.stream_head(), *[up.piece(b"data: " + b"x" * 1_000_000)] * 5, up.STALL), *BROKEN, "4194304"
    ),
    "compressed unasked": Case(
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n" + EVENTS + b"\r\n" + gzip.compress(b"data: {}\n\n"),),
        *BROKEN, "compressed",
    ),
}  # fmt: skip

# Streams that go wrong after their first token: the client gets what came, then an error event, and never [DONE].
FIRST = up.chunk("Hi")
BEGUN = {
    "closed": ((up.CLOSE,), "upstream_broken", "in the middle of its reply"),
    "reset": ((up.RESET,), "upstream_broken", "in the middle of its reply"),
    "half a chunk": ((b"40\r\ndata: {", 0.01, up.CLOSE), "upstream_broken", "in the middle of its reply"),
    "a bad chunk size": ((b"-5\r\n",), "upstream_broken", "not valid HTTP/1.1"),
    "neither an end nor [DONE]": ((up.END,), "upstream_broken", "before its answer was complete"),
    "half an event": ((up.piece(b'data: {"cho') + up.END,), "upstream_broken", "before its answer was complete"),
    "an error": ((up.piece(up.event({"error": {"message": "CUDA"}})) + up.END,), "upstream_broken", REPORTED),
    "an error that is a string": ((up.piece(up.event({"error": "CUDA"})) + up.END,), "upstream_broken", REPORTED),
    "an error in vLLM's old words": (
        (up.piece(up.event({"object": "error", "message": "CUDA"})) + up.END,), "upstream_broken", REPORTED
    ),
    "garbage": ((up.piece(b"data: \xff\x00{}\n\n"),), "upstream_broken", "not a chunk of an answer"),
    "deep nesting": ((up.piece(b"data: " + b"[" * 100_000 + b"\n\n"),), "upstream_broken", "not a chunk of an answer"),
    "silence": ((up.STALL,), "upstream_timeout", "0.2 s between"),
    "keep-alives for ever": (
        tuple(x for _ in range(60) for x in (up.piece(b": ping\n\n"), 0.05)), "upstream_timeout", "0.2 s between"
    ),
}  # fmt: skip

# Streams that are odd and right: the client gets an answer of two tokens.
EVENTS_OF_GOOD = [up.chunk("Hel"), up.chunk("lo", finish="stop"), up.usage(3, 2)]
DONE = up.event(b"[DONE]")


def streamed(data: bytes) -> bytes:
    return up.stream_head() + up.piece(data) + up.END


GOOD = b"".join([*EVENTS_OF_GOOD, DONE])
ODD = {
    "in one piece": streamed(GOOD),
    "every byte a chunk": up.stream_head() + b"".join(up.piece(bytes([byte])) for byte in GOOD) + up.END,
    "CRLF": streamed(GOOD.replace(b"\n", b"\r\n")),
    "CRLF, every byte a chunk": up.stream_head()
    + b"".join(up.piece(bytes([byte])) for byte in GOOD.replace(b"\n", b"\r\n"))
    + up.END,
    "CR alone": streamed(GOOD.replace(b"\n", b"\r")),
    "CR alone, every byte a chunk": up.stream_head()
    + b"".join(up.piece(bytes([byte])) for byte in GOOD.replace(b"\n", b"\r"))
    + up.END,
    "a byte order mark": streamed(b"\xef\xbb\xbf" + GOOD),
    "a byte order mark in pieces": up.stream_head()
    + b"".join(map(up.piece, (b"\xef", b"\xbb", b"\xbf", GOOD)))
    + up.END,
    "no space after data:": streamed(GOOD.replace(b"data: ", b"data:")),
    "comments between": streamed(b": hello\n\n" + b": ping\n\n".join([*EVENTS_OF_GOOD, DONE])),
    "other fields": streamed(b"".join(b"event: message\nid: 7\nretry: 9\n" + one for one in [*EVENTS_OF_GOOD, DONE])),
    "data in several lines": streamed(GOOD.replace(b', "choices"', b',\ndata: "choices"')),
    "blank lines more than needed": streamed(b"\n\n" + GOOD.replace(b"\n\n", b"\n\n\n\n")),
    "[DONE] without its blank line": streamed(GOOD.removesuffix(b"\n\n")),
    "[DONE] with one line's end": streamed(GOOD.removesuffix(b"\n")),
    "no [DONE]": streamed(b"".join(EVENTS_OF_GOOD)),
    "something after [DONE]": streamed(GOOD + up.chunk("more")),
    "ended by closing": b"HTTP/1.1 200 OK\r\n" + EVENTS + b"\r\n" + GOOD,
    "chunk extensions and trailers": up.stream_head()
    + b"%x;a=b\r\n%b\r\n" % (len(GOOD), GOOD)
    + b"0\r\nX-Trailer: a\r\n\r\n",
}  # fmt: skip


# Who waits for so long only, in seconds; "mock" waits as long as a target does that was told nothing.
TIMEOUTS = {"late": {"first_token": 0.2}, "halting": {"between_tokens": 0.2}, "slow": {"total": 0.8}, "mock": {}}


@pytest.fixture
async def mock(start_gateway, kit, upstream):
    """A gateway before one misbehaving server, with a limit on tokens. Its models differ in how long they wait."""
    pools = [(name, [kit.http_target(upstream.url, timeouts=timeouts)]) for name, timeouts in TIMEOUTS.items()]
    return await start_gateway(kit.configuration(*pools, limits=[LIMIT]))


def played(case: Case) -> list[Any]:
    return [step() if callable(step) else step for step in case.script]


def charged(gateway) -> int:
    """Return the tokens charged to the tenant so far."""
    return sum(
        amount for counter in gateway.gateway.counters.windows() for _, amount in counter.charges(time.time_ns())
    )


async def still_serves(gateway, upstream) -> None:
    before = charged(gateway)
    upstream.always(OK)
    assert (await gateway.chat(model="mock", max_tokens=OUTPUT_CAP)).status == 200, "the process has come to harm"
    assert charged(gateway) == before + GOOD_TOKENS
    assert gateway.gateway.admission.in_flight == 0


def assert_cost(record, case: Case) -> None:
    """An error status costs nothing; what a server may have worked on costs its estimated input, and nothing more."""
    if case.is_free:
        assert (record.cost_pico_usd, record.cost_basis, record.count_method) == (0, "free", "none")
        assert not record.usage.is_known
    else:
        tokens_in, tokens_out = record.usage.input_tokens, record.usage.output_tokens
        assert (record.cost_basis, record.count_method, tokens_out) == ("price_card", "estimate", 0)
        assert 0 < record.cost_pico_usd == tokens_in * 1_000_000


async def holds(gateway, upstream, case: Case, *, is_streamed: bool) -> None:
    before = charged(gateway)
    upstream.always(*played(case))
    answer = await gateway.chat(model=case.model, stream=is_streamed, max_tokens=OUTPUT_CAP)
    assert (answer.status, answer.error["code"]) == (case.status, case.code), answer.body
    said = answer.error["message"] if case.status == 400 else gateway.reasons[-1]
    fitting = (case.words, "another content type") if is_streamed else (case.words,)
    assert any(words in said for words in fitting), said
    assert not [word for word in (b"s3cret", b"sk-secret", b"stack") if word in answer.body]
    if case.retry_after is not None:
        told = int(answer.headers["retry-after"])
        assert 3590 <= told <= 3600 if case.retry_after.startswith("about") else str(told) == case.retry_after
    [*_, record] = gateway.requests()
    assert (record.outcome, record.status, record.error_code) == ("error", case.status, case.code)
    assert_cost(record, case)
    assert charged(gateway) - before == (0 if case.is_free else record.usage.input_tokens)
    await still_serves(gateway, upstream)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_what_goes_wrong_before_an_answer_has_its_error_and_its_cost(mock, upstream, subtests, is_streamed):
    for name, case in BEFORE.items():
        with subtests.test(name):
            await holds(mock, upstream, case, is_streamed=is_streamed)


async def test_a_whole_answer_that_goes_wrong_has_its_error_and_its_cost(mock, upstream, subtests):
    for name, case in WHOLE.items():
        with subtests.test(name):
            await holds(mock, upstream, case, is_streamed=False)


async def test_a_stream_that_goes_wrong_before_its_first_token_has_its_error_and_its_cost(mock, upstream, subtests):
    for name, case in STREAMS.items():
        with subtests.test(name):
            await holds(mock, upstream, case, is_streamed=True)


async def test_a_stream_that_goes_wrong_after_its_first_token_is_billed_for_what_came(mock, upstream, subtests):
    for name, (script, code, words) in BEGUN.items():
        with subtests.test(name):
            before = charged(mock)
            upstream.always(up.stream_head() + up.piece(FIRST), 0.02, *script)
            model = "halting" if code == "upstream_timeout" else "mock"
            answer = await mock.chat(model=model, stream=True, max_tokens=OUTPUT_CAP)
            assert answer.status == 200 and answer.events[0] == FIRST.strip() and b"[DONE]" not in answer.body
            error = json.loads(answer.events[-1].removeprefix(b"data: "))["error"]
            assert error["code"] == code and words in mock.reasons[-1]
            [*_, record] = mock.requests()
            assert (record.outcome, record.count_method, record.usage.output_tokens) == ("error", "estimate", 1)
            assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000 + 2_000_000
            assert charged(mock) - before == record.usage.total_tokens
            await still_serves(mock, upstream)


async def test_a_stream_that_is_odd_and_right_is_an_answer_that_an_sdk_reads(mock, upstream, subtests):
    client = mock.sdk()
    messages: Any = [{"role": "user", "content": "Hi"}]
    for name, reply in ODD.items():
        with subtests.test(name):
            upstream.always(reply, *([up.CLOSE] if name == "ended by closing" else []))
            answer = await mock.chat(model="mock", stream=True, stream_options={"include_usage": True})
            assert answer.status == 200, answer.body
            assert answer.body.endswith(b"data: [DONE]\n\n") and answer.body.count(b"[DONE]") == 1
            assert b"ping" not in answer.body and b"more" not in answer.body
            [*_, record] = mock.requests()
            assert (record.outcome, record.finish_reason, record.count_method) == ("ok", "stop", "reported")
            assert (record.usage.input_tokens, record.usage.output_tokens) == (3, 2)
            stream: Any = await client.chat.completions.create(model="mock", messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            assert text == "Hello", "an SDK does not read what was passed on"


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_another_server_answers_where_nothing_was_sent(start_gateway, kit, new_upstream, subtests, is_streamed):
    bad, good = await new_upstream(), await new_upstream()
    good.always(streamed(GOOD) if is_streamed else OK)
    pools = [
        (name, [kit.http_target(bad.url, "bad", timeouts, weight=1000), kit.http_target(good.url, "good")])
        for name, timeouts in TIMEOUTS.items()
    ]
    config = kit.configuration(*pools)
    for pool in config["pools"]:
        pool["failures"] = {"breaker": None, "retry_share": 1}  # all are to be met, however many were before
    gateway = await start_gateway(config)
    for name, case in {**BEFORE, **(STREAMS if is_streamed else WHOLE)}.items():
        with subtests.test(name):
            bad.always(*played(case))
            seen = len(gateway.attempts())
            answer = await gateway.chat(model=case.model, stream=is_streamed)
            if case.status == 400:
                assert answer.error["code"] == "upstream_rejected", "it would be refused elsewhere too"
                continue
            assert answer.status == 200, answer.body
            first, second = gateway.attempts()[seen:]
            assert (first.replica, first.error_code) == ("bad", case.code)
            assert_cost(first, case)
            assert (second.replica, second.reason, second.usage.output_tokens) == ("good", "fallback", 2)


async def test_bytes_beyond_a_replys_length_reach_nobody(mock, upstream):
    upstream.then(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    upstream.then(OK + b"garbage")
    upstream.always(OK)
    for _ in range(3):
        assert (await mock.chat(model="mock")).json["choices"][0]["message"]["content"] == "Hi there"
    assert upstream.accepted == 3
