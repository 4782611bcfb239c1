"""Gateways that serve the same configuration and count in the same Redis."""

import asyncio
import itertools
import string
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from bench.fleet.books import Books
from bench.fleet.gateway import GatewayProcess

MODEL: Final = "scripted-1"
INPUT_USD_PER_MTOK: Final = "0.37"
OUTPUT_USD_PER_MTOK: Final = "1.13"
INPUT_PICO_USD: Final = 370_000  # a token
OUTPUT_PICO_USD: Final = 1_130_000
_LETTERS: Final = string.ascii_letters


def key_of(number: int) -> str:
    """Return the secret of the key of that number."""
    code = "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(4))
    return "tk-" + code.rjust(43, "A")


def configuration(
    tenants: Sequence[str], *, limits: Iterable[Mapping[str, Any]] = (), budgets: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a gateway's file with one scripted model; the n-th key is of the n-th tenant named."""
    keys = [{"key": key_of(number), "tenant": tenant, "id": f"key_{number}"} for number, tenant in enumerate(tenants)]
    prices = {"input_text": INPUT_USD_PER_MTOK, "output_text": OUTPUT_USD_PER_MTOK}
    return {
        "keys": keys,
        "pools": [{"name": MODEL, "targets": [{"name": "s1", "kind": "scripted"}]}],
        "models": [{"name": MODEL, "pool": MODEL}],
        "prices": [{"model": MODEL, "version": "bench/1", "usd_per_mtok": prices}],
        "limits": [dict(limit) for limit in limits],
        "budgets": [dict(budget) for budget in budgets],
    }


def tenant_limit(name: str, tenant: str, metric: str, amount: int, window: str | None = "minute") -> dict[str, Any]:
    """Return a limit of a tenant as a whole."""
    found = {"id": name, "tenant": tenant, "level": "tenant", "metric": metric, "amount": amount}
    return found | ({"window": window} if window else {})


def total_budget(name: str, tenant: str, amount_usd: str) -> dict[str, Any]:
    """Return a hard budget of a tenant as a whole that never starts over."""
    return {"id": name, "tenant": tenant, "level": "tenant", "period": "total", "amount_usd": amount_usd}


def chat_body(
    input_tokens: int, output_tokens: int, *, gap_ms: float = 0.0, max_tokens: int | None = None, streamed: bool = True
) -> dict[str, Any]:
    """Return a chat whose prompt and answer have these lengths by the scripted model's tokenizer: a word is a token."""
    directive = f"[[script tokens={output_tokens} gap_ms={gap_ms:g}]]"
    content = " ".join([*itertools.repeat("word", max(input_tokens - 3, 0)), directive])
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": content}]}
    if streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body if max_tokens is None else body | {"max_tokens": max_tokens}


class Fleet:
    """Some gateways in a temporary folder. `async with` starts them; at the end they are killed and gone."""

    def __init__(
        self, count: int, config: Mapping[str, Any], redis_url: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="tollkeeper-fleet-")
        home = Path(self._home.name)
        self.gateways = [
            GatewayProcess(f"gw-{number + 1}", home, config, redis_url, environment) for number in range(count)
        ]

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(gateway.start() for gateway in self.gateways))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for gateway in self.gateways:
            gateway.kill()
        self._home.cleanup()

    @property
    def ports(self) -> list[int]:
        """Return the ports they listen on."""
        return [gateway.port for gateway in self.gateways]

    async def close_books(self) -> Books:
        """Wait until nothing is in progress, stop all, and read all records."""
        for gateway in self.gateways:
            if not await gateway.is_quiet(within_seconds=15.0):
                raise RuntimeError(f"gateway {gateway.name!r} still has requests in progress")
        await asyncio.gather(*(gateway.stop() for gateway in self.gateways))
        return Books([record for gateway in self.gateways for record in gateway.records()])
