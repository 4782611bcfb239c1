"""One part after the other of a doubled installation is killed or frozen under load, and what callers see of it."""

import asyncio
import random
import sys
import time
import urllib.error
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bench.crashing.ledger import compare
from bench.crashing.service import Service
from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.doubled import Doubled
from bench.fleet.failover import How

_CALLERS: Final = 6
_CALL_PAUSE_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 5.0  # of a caller, for an answer of a fraction of a second
_MAX_TOKENS: Final = 24
_CHANGE_PAUSE_SECONDS: Final = 0.3
_AWAY_SECONDS: Final = 6.0  # that a part is away, from when another was promoted in its place
_STEADY_SECONDS: Final = 2.0
_RECOVERY_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 0.2
SPENT_USD: Final = "0.004"
_SPENDER: Final = "spender"
# What a gateway may answer while the shared counters are unreachable: a hard budget without a lease is refused.
_ALLOWED: Final = {"redis": {"counters_unavailable"}}
PARTS: Final = ("gateway", "collector", "control", "redis", "postgresql", "store")


@dataclass(slots=True)
class Seen:
    """What callers and the one who changes things were answered."""

    tokens: dict[str, int] = field(default_factory=dict)  # of each whole answer, by request id
    outside: Counter[str] = field(default_factory=Counter)  # answers of 5xx that no stated policy allows, by code
    allowed: Counter[str] = field(default_factory=Counter)  # answers of 5xx that one allows
    broken: int = 0  # connections that ended or stood still
    refused_spending: int = 0
    changed: set[str] = field(default_factory=set)  # tenants whose creation was acknowledged
    refused_changes: int = 0


class Load:
    """Callers that go to another gateway when theirs does not answer, one that spends a budget, and one of changes."""

    def __init__(self, installation: Doubled, source: random.Random, spender_key: str) -> None:
        self.seen = Seen()
        self.lost = ""  # the part that is away, or was until a moment ago
        self._installation = installation
        self._source = source
        self._keys = [installation.demo_key] * (_CALLERS - 1) + [spender_key]
        self._is_over = False

    async def run(self) -> None:
        """Ask and change until `end` is called."""
        await asyncio.gather(*(self._ask(number, key) for number, key in enumerate(self._keys)), self._change())

    def end(self) -> None:
        """Begin nothing more."""
        self._is_over = True

    async def _ask(self, number: int, key: str) -> None:
        connections: dict[int, Connection] = {}
        ports = list(self._installation.gateway_ports)
        while not self._is_over:
            port = self._source.choice(ports)
            tokens, streamed = self._source.randint(1, _MAX_TOKENS), self._source.random() < 0.5
            body: dict[str, Any] = {
                "model": "scripted-1",
                "messages": [{"role": "user", "content": f"word word [[script tokens={tokens} gap_ms=2]]"}],
            }
            if streamed:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            answer = Answer()
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    connection = connections.get(port) or await Connection.open(port)
                    connections[port] = connection
                    await connection.ask(chat_request(key, body), answer)
                self._note(answer, streamed)
            except (OSError, EOFError, TimeoutError, ValueError):
                self.seen.broken += 1
                if gone := connections.pop(port, None):
                    gone.close()
            await asyncio.sleep(_CALL_PAUSE_SECONDS)
        for connection in connections.values():
            connection.close()

    def _note(self, answer: Answer, streamed: bool) -> None:
        if answer.status >= 500:
            is_allowed = answer.error_code in _ALLOWED.get(self.lost, ())
            (self.seen.allowed if is_allowed else self.seen.outside)[f"{self.lost}: {answer.error_code}"] += 1
        elif answer.status == 429:
            self.seen.refused_spending += 1
        elif answer.status == 200 and answer.is_whole and (not streamed or answer.usage is not None):
            count = answer.tokens if streamed else int(answer.json["usage"]["completion_tokens"])
            self.seen.tokens[answer.request_id] = count
        else:
            self.seen.outside[f"{self.lost}: status {answer.status}, whole {answer.is_whole}"] += 1

    async def _change(self) -> None:
        """Make tenants at one of the control planes, at the other if that does not answer."""
        number = 0
        while not self._is_over:
            number += 1
            name = f"made-{number}"
            for plane in (number % 2, 1 - number % 2):
                try:
                    made = partial(self._installation.change, plane, "/v1/tenants", {"id": name, "name": name})
                    await asyncio.to_thread(made)
                    self.seen.changed.add(name)
                    break
                except (OSError, urllib.error.URLError, ValueError):
                    self.seen.refused_changes += 1
            await asyncio.sleep(_CHANGE_PAUSE_SECONDS)


async def lose_each_part(installation: Doubled, source: random.Random, how: How) -> dict[str, float]:
    """Lose each part once under load; return what was lost, doubled and refused, and how long each took to recover."""
    spender_key = await asyncio.to_thread(_make_spender, installation)
    await asyncio.sleep(_STEADY_SECONDS)  # until gateways know it
    load = Load(installation, source, spender_key)
    running = asyncio.create_task(load.run())
    found: dict[str, float] = {}
    try:
        await asyncio.sleep(_STEADY_SECONDS)
        for part in PARTS:
            load.lost = part
            found[f"{part}_recovered"] = await _lose(installation, source, part, how)
            await asyncio.sleep(_STEADY_SECONDS)
            load.lost = ""
    finally:
        load.end()
        await running
    await _until(installation.is_drained, "empty journals and spools")
    return found | await asyncio.to_thread(_judge, installation, load.seen)


async def _lose(installation: Doubled, source: random.Random, part: str, how: How) -> float:
    """Lose a part for some seconds; return how long after its loss the whole installation was well again."""
    began = time.monotonic()
    if part in ("redis", "postgresql"):
        bring_back = await asyncio.to_thread(_lose_primary, installation, part, how)
    else:
        bring_back = await asyncio.to_thread(_lose_service, _service_of(installation, source, part), how)
    await asyncio.sleep(_AWAY_SECONDS)
    await asyncio.to_thread(bring_back)
    await _until(installation.is_whole, f"recovery from a {how} {part}")
    return time.monotonic() - began


def _service_of(installation: Doubled, source: random.Random, part: str) -> Service:
    if part == "control":
        return installation.leader()
    if part == "store":
        return installation.store
    return source.choice(installation.gateways if part == "gateway" else installation.collectors)


def _lose_service(service: Service, how: How) -> Callable[[], None]:
    if how == "killed":
        service.kill()
        return service.start
    service.freeze()
    return service.thaw


def _lose_primary(installation: Doubled, part: str, how: How) -> Callable[[], None]:
    if part == "redis":
        lost = installation.redis.primary()
        assert lost is not None, "there is no Redis primary"
        lost.kill() if how == "killed" else lost.freeze()
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while installation.redis.primary() in (None, lost):
            assert time.monotonic() < deadline, "no replica was promoted"
            time.sleep(_LOOK_SECONDS)
        return lost.start if how == "killed" else lost.go_on
    pair = installation.postgres
    pair.primary.kill() if how == "killed" else pair.primary.freeze()
    pair.promote_standby()
    return pair.primary.start if how == "killed" else pair.primary.go_on


def _make_spender(installation: Doubled) -> str:
    """Make a tenant with a hard budget that is spent during the run; return its key."""
    installation.change(0, "/v1/tenants", {"id": _SPENDER, "name": _SPENDER})
    key = installation.change(0, f"/v1/tenants/{_SPENDER}/keys", {"name": "spends"})
    installation.change(1, f"/v1/tenants/{_SPENDER}/budgets", {"period": "total", "amount_usd": SPENT_USD})
    return str(key["secret"])


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"{what} did not happen within {_RECOVERY_SECONDS:g} s"
        await asyncio.sleep(_LOOK_SECONDS)


def _judge(installation: Doubled, seen: Seen) -> dict[str, float]:
    client = installation.client()
    try:
        books = compare(client, seen.tokens)
        asked = (
            "SELECT toUInt64(sum(ifNull(charged_usd, 0)) * 1e12) AS spent FROM requests WHERE tenant = {tenant:String}"
        )
        (row,) = client.query(asked, {"tenant": _SPENDER})
    finally:
        client.close()
    for code, count in seen.outside.items():
        print(f"outside the policy: {count} x {code}", file=sys.stderr)
    spent, budget = int(str(row["spent"])), round(float(SPENT_USD) * 1e12)
    return {
        "asked": len(seen.tokens),
        "lost": books.lost,
        "doubled": books.doubled,
        "different": books.different,
        "rollup_difference": books.rollup_difference,
        "shared_batches": books.shared_batches,
        "budget_exceeded": max(spent - budget, 0),
        "budget_used": spent / budget,
        "outside_policy": sum(seen.outside.values()),
        "refused_by_policy": sum(seen.allowed.values()),
        "broken": seen.broken,
        "changes": len(seen.changed),
        "changes_lost": len(seen.changed - installation.tenants()),
        "changes_refused": seen.refused_changes,
    }
