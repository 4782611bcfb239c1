"""Four gateways share one hard budget for tokens and tools: together they never spend more."""

import asyncio

import pytest

from tests.gateway.mcp.conftest import call, with_servers

pytestmark = pytest.mark.service

BUDGET_PICO_USD = 4_000_000_000
BUDGET = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.004"}


async def test_tokens_and_tools_of_four_gateways_stay_within_one_hard_budget(start_gateway, serve_mcp, own_redis):
    server = {"name": "weather", "url": serve_mcp().url, "price_usd": "0.0001"}
    config = with_servers(server, budgets=[BUDGET])
    gateways = [await start_gateway(config, redis_url=own_redis.url, gateway_name=f"g{n}") for n in range(4)]
    for _ in range(8):
        asked = [gateway.chat(stream=True) for gateway in gateways]
        called = [call(gateway, "weather__say", {"text": "x"}) for gateway in gateways for _ in range(2)]
        await asyncio.gather(*asked, *called)
    records = [record for gateway in gateways for record in gateway.requests()]
    charged = [record.charged_pico_usd or 0 for record in records]
    assert sum(charged) <= BUDGET_PICO_USD
    assert sum(charged) > BUDGET_PICO_USD * 9 // 10
    assert {record.operation for record in records if record.charged_pico_usd} == {"chat", "execute_tool"}
    assert any(record.outcome == "rejected" for record in records)
