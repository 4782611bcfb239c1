"""A streamed answer costs what the same answer costs whole, on every API."""

from typing import Any

import pytest

PROMPT = "one two three four"
APIS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/completions": {"prompt": PROMPT},
    "/v1/messages": {"max_tokens": 64, "messages": [{"role": "user", "content": PROMPT}]},
    "/v1/responses": {"input": PROMPT, "store": False},
}


@pytest.mark.parametrize("path", APIS)
async def test_streamed_and_whole_answers_have_one_usage_and_one_cost(start_gateway, kit, path):
    script = {"tokens": 9, "cached": 3, "reasoning": 0 if path == "/v1/completions" else 2}
    config = kit.configuration(("scripted-1", [kit.scripted(**script)]))
    config["prices"][0]["usd_per_mtok"] |= {"cache_read_text": "0.1", "output_reasoning": "5"}
    gateway = await start_gateway(config)
    for stream in (False, True):
        body = {"model": "scripted-1", "stream": stream, **APIS[path]}
        answer = await gateway.ask(gateway.request(body, path=path))
        assert answer.status == 200, answer.body
    whole, streamed = gateway.requests()
    assert (whole.stream, streamed.stream) == (False, True)
    assert whole.usage == streamed.usage and whole.usage.output_tokens == 9
    assert (whole.usage.input_text, whole.usage.cache_read_text) == (1, 3)
    thought = script["reasoning"]
    wanted = 1 * 1_000_000 + 3 * 100_000 + thought * 5_000_000 + (9 - thought) * 2_000_000
    assert whole.cost_pico_usd == streamed.cost_pico_usd == wanted
    assert whole.charged_pico_usd == streamed.charged_pico_usd
