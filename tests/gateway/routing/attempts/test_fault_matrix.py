"""Every fault of a target under every remedy: what the client sees, and what stands on the ledger.

Faults: refused, TLS failure, 500, 429 with and without Retry-After, a stall before and after the first token,
garbage, truncation. Remedies: a retry at the same target, a fallback to another, a breaker, a hedge.
"""

import socket
from typing import Any

import pytest

from backends.network.tls import TlsFiles, server_tls
from tests.certificates import Authority
from tests.gateway.model_server import Upstream

up = Upstream
GOOD = (up.streamed(up.chunk("Hi"), up.chunk(finish="stop"), up.usage(3, 1), up.event(b"[DONE]")),)
FIRST_TOKEN = up.stream_head() + up.piece(up.chunk("Hi"))

# What a server plays; the code that the ledger has for it. Servers that refuse or fail the handshake play nothing.
FAULTS: dict[str, tuple[tuple[Any, ...] | None, str]] = {
    "refused": (None, "upstream_unreachable"),
    "tls": (None, "upstream_unreachable"),
    "500": ((up.whole({"error": {"message": "out of memory"}}, 500),), "upstream_error"),
    "429": ((up.whole({"error": {"message": "slow"}}, 429),), "upstream_rate_limited"),
    "429_told": ((up.whole({"error": {"message": "slow"}}, 429, "retry-after: 0.02\r\n"),), "upstream_rate_limited"),
    "stall_before": (("stall",), "upstream_timeout"),
    "stall_after": ((FIRST_TOKEN, "stall"), "upstream_timeout"),
    "garbage": ((b"not HTTP at all\r\n\r\n",), "upstream_broken"),
    "truncation": ((FIRST_TOKEN, "close"), "upstream_broken"),
}
AFTER_A_TOKEN = ("stall_after", "truncation")
FOR_EVER = ("refused", "tls")  # a second try meets the same
TIMEOUTS = {"first_token": 0.15, "between_tokens": 0.1}

REMEDIES = {
    "retry": {"retries": 1, "backoff_seconds": 0.01, "longest_backoff_seconds": 0.1, "breaker": None},
    "fallback": {"breaker": None},
    "breaker": {"breaker": {"failures_in_a_row": 2, "first_pause_seconds": 60, "longest_pause_seconds": 60}},
    "hedge": {"hedge": {"least_seconds": 1.0, "share": 1.0}, "breaker": None},
}


class Matrix:
    """One gateway with a pool for each fault, whose first target has it and whose second is well."""

    def __init__(self, gateway: Any, servers: dict[str, Upstream]) -> None:
        self.gateway = gateway
        self.servers = servers

    async def ask(self, fault: str) -> tuple[str, list[tuple[str, str, str, str]]]:
        """What the client sees, and the tries as they stand on the ledger: target, reason, outcome, code."""
        seen_requests, seen_attempts = len(self.gateway.requests()), len(self.gateway.attempts())
        answer = await self.gateway.chat(model=fault, stream=True)
        [record] = self.gateway.requests()[seen_requests:]
        attempts = self.gateway.attempts()[seen_attempts:]
        assert record.attempts == max(len(attempts), 1)
        rows = [(one.replica, one.reason, one.outcome, one.error_code) for one in attempts]
        for one in attempts:
            worked = one.outcome == "ok" or one.ttft_ns is not None
            assert one.cost_pico_usd is not None and (one.cost_pico_usd > 0 or not worked)
            assert (one.cost_basis == "free") == (one.cost_pico_usd == 0), "else an estimate"
        return self.view(answer), rows or [(record.replica, "first", record.outcome, record.error_code)]

    @staticmethod
    def view(answer: Any) -> str:
        if answer.status != 200:
            return f"{answer.status} {answer.error['code']}"
        if answer.events[-1] == b"data: [DONE]":
            return "whole"
        assert b'"reached_tokens":1' in answer.events[-1] and b"had reached 1 token" in answer.events[-1]
        return "error after 1 token"


@pytest.fixture
async def matrix(start_gateway, kit, new_upstream, tmp_path):
    """Start the gateway of a remedy."""
    issued = Authority(tmp_path).issue("server")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"

    async def start(remedy: str, *, once: bool, has_second: bool) -> Matrix:
        good, servers, pools = await new_upstream(), {}, []
        good.always(*GOOD)
        for fault, (script, _) in FAULTS.items():
            tls = server_tls(TlsFiles(issued.certificate, issued.key)) if fault == "tls" else None
            server = servers[fault] = await new_upstream(tls)
            if script is not None:
                server.always(*(GOOD if once else script))
                if once:
                    server.then(*script)
            url = nobody if fault == "refused" else server.url
            timeouts = TIMEOUTS | ({"first_token": 6.0} if remedy == "hedge" else {})  # the hedge goes well before
            targets = [kit.http_target(url, "bad", timeouts, weight=1000)]
            pools.append((fault, targets + [kit.http_target(good.url, "good")] * has_second))
        config = kit.configuration(*pools)
        for pool in config["pools"]:
            pool["failures"] = REMEDIES[remedy]
        return Matrix(await start_gateway(config), servers)

    return start


async def test_a_retry_at_the_same_target_mends_what_passes(matrix):
    found = await matrix("retry", once=True, has_second=False)
    for fault, (_, code) in FAULTS.items():
        view, rows = await found.ask(fault)
        if fault in AFTER_A_TOKEN:
            assert (view, rows) == ("error after 1 token", [("bad", "first", "error", code)]), fault
        elif fault in FOR_EVER:
            told = [("bad", "first", "error", code), ("bad", "retry", "error", code)]
            assert (view, rows) == ("502 upstream_unreachable", told), fault
        elif fault == "429":  # it does not say for how long, and a second is more than the longest pause
            assert (view, rows) == ("429 upstream_rate_limited", [("bad", "first", "error", code)]), fault
        else:
            assert (view, rows) == ("whole", [("bad", "first", "error", code), ("bad", "retry", "ok", "")]), fault


async def test_a_fallback_mends_all_that_comes_before_the_first_token(matrix):
    found = await matrix("fallback", once=False, has_second=True)
    for fault, (_, code) in FAULTS.items():
        view, rows = await found.ask(fault)
        if fault in AFTER_A_TOKEN:
            assert (view, rows) == ("error after 1 token", [("bad", "first", "error", code)]), fault
        else:
            assert (view, rows) == ("whole", [("bad", "first", "error", code), ("good", "fallback", "ok", "")]), fault


async def test_a_breaker_leaves_alone_what_fails_and_nobody_else(matrix):
    found = await matrix("breaker", once=False, has_second=True)
    # A rest that outlasts the test, however slow the machine is.
    found.servers["429_told"].always(up.whole({"error": {"message": "slow"}}, 429, "retry-after: 30\r\n"))
    alone = [("good", "first", "ok", "")]
    for fault, (_, code) in FAULTS.items():
        told = [await found.ask(fault) for _ in range(3)]
        fallen_back = ("whole", [("bad", "first", "error", code), ("good", "fallback", "ok", "")])
        if fault in AFTER_A_TOKEN:
            cut = ("error after 1 token", [("bad", "first", "error", code)])
            assert told == [cut, cut, ("whole", alone)], fault
        elif fault == "429":  # not ill, but asking for a rest: of a second, if it does not say
            assert told == [fallen_back, ("whole", alone), ("whole", alone)], fault
        elif fault == "429_told":
            assert told[0] == fallen_back and told[1:] == [("whole", alone)] * 2, fault
        else:
            assert told == [fallen_back, fallen_back, ("whole", alone)], fault
        server = found.servers[fault]
        assert len(server.requests) <= 2, fault
    away = found.gateway.gateway.health()["targets_away"]
    assert {f"{fault}/bad" for fault in FAULTS if not fault.startswith("429")} <= set(away)
    assert all(place.endswith("/bad") for place in away)


async def test_a_hedge_mends_a_late_first_token_and_leaves_the_rest_to_the_fallback(matrix):
    found = await matrix("hedge", once=False, has_second=True)
    for fault, (_, code) in FAULTS.items():
        firsts = found.gateway.gateway.health_book.pool(fault).firsts
        for _ in range(20):
            firsts.add(1_000_000)
        view, rows = await found.ask(fault)
        if fault in AFTER_A_TOKEN:
            assert (view, rows) == ("error after 1 token", [("bad", "first", "error", code)]), fault
        elif fault == "stall_before":
            lost = [("bad", "first", "cancelled", "hedge_lost"), ("good", "hedge", "ok", "")]
            assert (view, rows) == ("whole", lost), fault
        else:
            assert (view, rows) == ("whole", [("bad", "first", "error", code), ("good", "fallback", "ok", "")]), fault
