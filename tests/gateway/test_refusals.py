"""What one target of a pool cannot honour goes to one that can, and is refused by name where none can."""

import pytest

from tests.backends.llm.engine_fake import FakeHost, builtin_hello

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]


def limited(kit, upstream, name, **settings):
    target = kit.http_target(upstream.url, name)
    target["settings"] |= settings
    return target


@pytest.fixture
async def pair(start_gateway, kit, upstream, new_upstream):
    """A gateway with a server that takes text and one choice only, and one that takes everything."""
    other = await new_upstream()
    for server in (upstream, other):
        server.always(server.whole(server.completion()))
    plain = limited(kit, upstream, "plain", refuses=["n", "logit_bias"], takes={"images": False})
    gateway = await start_gateway(kit.configuration(("m", [plain, kit.http_target(other.url, "able")])))
    gateway.plain, gateway.able = upstream, other
    return gateway


@pytest.mark.parametrize("fields", [{"n": 2}, {"logit_bias": {"5": 1}}, {"messages": IMAGE}, {"n": 2, "stream": True}])
async def test_what_only_one_can_honour_goes_there_whoever_has_its_turn(pair, fields):
    if fields.get("stream"):
        chunks = (pair.able.chunk("a"), pair.able.chunk(finish="stop"), pair.able.event(b"[DONE]"))
        pair.able.always(pair.able.streamed(*chunks))
    for _ in range(4):
        assert (await pair.chat(model="m", **fields)).status == 200
    assert len(pair.able.requests) == 4 and not pair.plain.requests
    assert all(record.outcome == "ok" and record.usage.is_known for record in pair.requests())


async def test_what_both_can_honour_goes_to_both(pair):
    for _ in range(4):
        assert (await pair.chat(model="m", n=1)).status == 200
    assert (len(pair.plain.requests), len(pair.able.requests)) == (2, 2)


@pytest.mark.parametrize("turn", [0, 1])
async def test_the_failure_of_one_that_could_is_what_is_told(pair, turn):
    pair.able.always(pair.able.whole({"error": {"message": "x"}}, status=500))
    if turn:
        await pair.chat(model="m")
    answer = await pair.chat(model="m", n=2)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(("fields", "param"), [({"n": 2}, "n"), ({"messages": IMAGE}, "messages[0].content[0].type")])
async def test_what_none_can_honour_is_refused_by_name_and_costs_nothing(start_gateway, kit, upstream, fields, param):
    targets = [limited(kit, upstream, name, refuses=["n"], takes={"images": False}) for name in ("a", "b")]
    limit = {"tenant": "acme", "level": "key", "subject": "key_1", "metric": "tokens", "window": "minute"}
    gateway = await start_gateway(kit.configuration(("m", targets), limits=[{**limit, "amount": 100_000}]))
    answer = await gateway.chat(model="m", **fields)
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, "unsupported_parameter")
    [record] = gateway.requests()
    assert not upstream.requests and not record.usage.total_tokens and not record.cost_pico_usd
    assert not record.charged_pico_usd and record.status == 400


@pytest.fixture
async def mixed(start_gateway, kit, upstream, tmp_path, eventually):
    """A gateway with an engine host and a server for one model, under a limit that has prompts counted."""
    host = await FakeHost(tmp_path / "h.sock", models=[builtin_hello("m")]).start()
    upstream.always(upstream.whole(upstream.completion()))
    targets = [{"name": "own", "kind": "engine", "url": host.url}, kit.http_target(upstream.url, "rented")]
    limit = {"tenant": "acme", "level": "key", "subject": "key_1", "metric": "tokens", "window": "minute"}
    gateway = await start_gateway(kit.configuration(("m", targets), limits=[{**limit, "amount": 100_000}]))
    await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
    yield gateway
    await host.stop()


@pytest.mark.parametrize("fields", [{"messages": IMAGE}, {"functions": [{"name": "f"}]}, {"store": True}])
async def test_what_an_engine_host_cannot_do_goes_to_the_server_beside_it(mixed, upstream, fields):
    for _ in range(2):
        assert (await mixed.chat(model="m", **fields)).status == 200
    assert len(upstream.requests) == 2
    assert all(record.usage.total_tokens == 5 for record in mixed.requests())


async def test_a_fault_of_the_request_itself_is_tried_nowhere_else(mixed, upstream):
    for _ in range(2):
        answer = await mixed.chat(model="m", stop=[""])
        assert (answer.status, answer.error["param"]) == (400, "stop")
    assert not upstream.requests
