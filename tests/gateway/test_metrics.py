"""GET /metrics over real sockets: what a scrape says is what the records say."""

import asyncio
import json
import socket
from collections import Counter
from fractions import Fraction

import pytest

from contracts.errors import ConfigurationError
from contracts.metering.usage import LEAVES
from contracts.pricing.price_state import WITHOUT_PRICE, price_state
from gateway.process.settings import GatewaySettings
from tests.gateway.exposition_parser import Page
from tests.ports import find_free_port

ODD = 'odd "name" \\ with\na line'
OTHER_KEY = "tk-" + "B" * 43
SECRET_USER = "user-ada-lovelace"
SECRET_TAG = "project-xanadu"
SECRET_TEXT = "the prompt is nobody's business"
REQUESTS = "tollkeeper_requests_total"


def get(path="/metrics", **headers):
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n".encode()


async def scrape(gateway, **headers):
    answer = await gateway.ask(get(**headers))
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Page(answer.body)


@pytest.fixture
async def mixed(start_gateway, upstream, kit):
    """A gateway that has seen every outcome, and the numbers of those it does not record."""
    upstream.always(upstream.whole({"error": {"message": "out of memory"}}, status=500))
    config = kit.configuration(
        ("scripted-1", [kit.scripted()]),
        (ODD, [kit.scripted("s2", tokens=3)]),
        ("slow", [kit.scripted("s3", gap_ms=50, tokens=1000)]),
        ("broken", [kit.http_target(upstream.url)]),
        limits=[
            {"id": "few", "tenant": "other", "level": "tenant", "metric": "requests", "window": "day", "amount": 2}
        ],
        budgets=[{"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": 1}],
    )
    config["pools"][0]["queue"] = {"max_in_flight": 4}
    config["keys"].append({"key": OTHER_KEY, "tenant": "other", "id": "key_other"})
    gateway = await start_gateway(config, metrics_tenants=1)
    private = {"user": SECRET_USER, "messages": [{"role": "user", "content": SECRET_TEXT}]}
    tagged = {"X-Tollkeeper-Tags": f"feature={SECRET_TAG}", "X-Tollkeeper-Conversation-Id": "conv-42"}
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    statuses = [
        (await gateway.chat(**private, headers=tagged)).status,
        (await gateway.chat(stream=True, **private)).status,
        (await gateway.chat(model=ODD)).status,
        (await gateway.chat(model="broken")).status,
        (await gateway.chat(model="no-such-model")).status,
        (await gateway.chat(temperature=9)).status,
        *[(await gateway.chat(headers=other)).status for _ in range(4)],
        *[(await gateway.chat(headers={"Authorization": "Bearer tk-wrong"})).status for _ in range(3)],
    ]
    assert statuses == [200, 200, 200, 502, 404, 400, 200, 200, 429, 429, 401, 401, 401]
    client = await gateway.connect()
    await client.send(kit.request(model="slow", stream=True))
    await client.reader.readuntil(b"\r\n\r\n")
    client.close()
    for _ in range(300):
        if len(gateway.requests()) == 11:
            return gateway
        await asyncio.sleep(0.01)
    raise AssertionError("the client that left has no record")


async def test_requests_are_counted_as_they_are_recorded(mixed):
    page, records = await scrape(mixed), mixed.requests()
    expected = Counter((record.api, record.model, record.outcome, str(record.status)) for record in records)
    found: Counter[tuple[str, ...]] = Counter()
    for labels in page.labels(REQUESTS):
        found[labels["api"], labels["model"], labels["outcome"], labels["status"]] += int(
            page.value(REQUESTS, **labels)
        )
    assert found == expected
    assert {outcome for _, _, outcome, _ in expected} == {"ok", "error", "cancelled", "rejected"}
    assert page.value("tollkeeper_records_total") == len(records) == 11
    assert page.value("tollkeeper_unauthenticated_requests_total") == 3


async def test_tokens_and_costs_are_the_sums_of_the_records(mixed):
    page, records = await scrape(mixed), mixed.requests()
    for model in ("scripted-1", ODD, "slow", "broken"):
        of_it = [record for record in records if record.model == model]
        for leaf in LEAVES:
            expected = sum(getattr(record.usage, leaf) or 0 for record in of_it)
            assert page.value("tollkeeper_tokens_total", model=model, leaf=leaf) == expected
        cost = Fraction(sum(record.cost_pico_usd or 0 for record in of_it), 10**12)
        assert page.value("tollkeeper_cost_usd_total", model=model) == float(cost)
        unknown = sum(price_state(record) in WITHOUT_PRICE for record in of_it if record.attempts > 0)
        assert page.value("tollkeeper_requests_without_cost_total", model=model) == unknown
    assert page.value("tollkeeper_tokens_total", direction="output") > 0
    assert page.value("tollkeeper_cost_usd_total", model="scripted-1") > 0


async def test_durations_are_those_of_the_records(mixed):
    page, records = await scrape(mixed), mixed.requests()
    duration, first = "gen_ai_server_request_duration_seconds", "gen_ai_server_time_to_first_token_seconds"
    assert page.value(f"{duration}_count") == len(records)
    assert page.value(f"{duration}_sum") == pytest.approx(sum(record.duration_ns for record in records) / 1e9)
    rejected = sum(record.outcome == "rejected" for record in records)
    assert page.value(f"{duration}_count", error_type="rejected") == rejected
    timed = [record.ttft_ns for record in records if record.ttft_ns is not None]
    assert page.value(f"{first}_count") == len(timed)
    for bound in ("0.001", "0.02", "1.0"):
        within = sum(waited <= float(bound) * 1e9 for waited in timed)
        assert page.value(f"{first}_bucket", le=bound) == within


async def test_refusals_are_counted_by_their_cause(mixed):
    page = await scrape(mixed)
    name = "tollkeeper_refusals_total"
    found = {labels["cause"]: page.value(name, **labels) for labels in page.labels(name)}
    assert found == {
        **dict.fromkeys(("budget", "queue", "journal", "counters", "unavailable", "permission", "other"), 0),
        "rate_limit": 2,
        "auth": 3,
        "invalid_request": 2,
    }


async def test_nothing_that_a_caller_chooses_is_a_label(mixed):
    answer = await mixed.ask(get())
    for secret in ("tk-", "key_", SECRET_USER, SECRET_TAG, SECRET_TEXT, "conv-42", "no-such-model", "apollo"):
        assert secret.encode() not in answer.body, f"{secret!r} is shown"


async def test_tenants_are_named_up_to_the_number_set_and_the_others_counted_together(mixed):
    page, records = await scrape(mixed), mixed.requests()
    name = "tollkeeper_tenant_requests_total"
    assert {labels["tenant"] for labels in page.labels(name)} == {"acme", ""}
    for label, tenant in (("acme", "acme"), ("", "other")):
        of_it = [record for record in records if record.who.tenant == tenant]
        assert page.value(name, tenant=label) == len(of_it)
        tokens = sum(record.usage.output_tokens or 0 for record in of_it)
        assert page.value("tollkeeper_tenant_tokens_total", tenant=label, direction="output") == tokens


async def test_no_tenant_is_named_unless_that_is_asked_for(gateway):
    await gateway.chat()
    answer = await gateway.ask(get())
    assert b"acme" not in answer.body and b"tollkeeper_tenant" not in answer.body


async def test_a_models_name_with_quotes_backslashes_and_line_ends_is_escaped(mixed):
    page = await scrape(mixed)
    assert page.value(REQUESTS, model=ODD, outcome="ok") == 1
    assert ODD in page.label_values()


async def test_the_state_of_the_gateway_is_shown(mixed):
    page = await scrape(mixed)
    assert page.value("tollkeeper_counters_reachable", store="memory") == 1
    used = page.value("tollkeeper_budget_used_ratio", budget="bud")
    charged = sum(record.charged_pico_usd or 0 for record in mixed.requests() if record.who.tenant == "acme")
    assert used == pytest.approx(charged / 1e12) and used > 0
    assert page.value("tollkeeper_journal_bytes") == mixed.gateway.journal.pending_bytes
    assert page.value("tollkeeper_connections") >= 1
    assert page.value("tollkeeper_queue_wait_seconds_count", pool="scripted-1", **{"class": "standard"}) == 4
    assert page.value("tollkeeper_reservations_in_flight") == page.value("tollkeeper_requests_in_flight") == 0
    assert page.value("process_resident_memory_bytes") > 1 << 20
    assert page.value("process_open_fds") > 3
    assert page.value("tollkeeper_build_info") == 1
    assert "tollkeeper_shipping_lag_seconds" not in page.metrics, "nothing is shipped here"


async def test_what_waits_and_runs_is_seen_while_it_does(start_gateway, kit):
    config = kit.configuration(
        ("slow", [kit.scripted(gap_ms=20, tokens=1000)]),
        limits=[{"id": "l", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "day", "amount": 99}],
    )
    config["pools"][0]["queue"] = {"max_in_flight": 1}
    gateway = await start_gateway(config)
    clients = [await gateway.connect() for _ in range(3)]
    for client in clients:
        await client.send(kit.request(model="slow", stream=True))
    for _ in range(300):
        page = await scrape(gateway)
        if page.value("tollkeeper_queue_waiting", pool="slow", **{"class": "standard"}) == 2:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("two never waited")
    assert page.value("tollkeeper_queue_in_flight", pool="slow") == 1
    assert page.value("tollkeeper_requests_in_flight") == page.value("tollkeeper_reservations_in_flight") == 3
    for client in clients:
        client.close()
    for _ in range(300):
        page = await scrape(gateway)
        if not page.value("tollkeeper_reservations_in_flight"):
            break
        await asyncio.sleep(0.01)
    assert page.value("tollkeeper_reservations_in_flight") == page.value("tollkeeper_queue_waiting") == 0


async def test_records_that_cannot_be_shipped_show_their_age(start_gateway, kit, tmp_path):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{find_free_port()}")
    assert (await scrape(gateway)).value("tollkeeper_shipping_lag_seconds") == 0
    await gateway.chat()
    await asyncio.sleep(0.02)
    assert 0.02 <= (await scrape(gateway)).value("tollkeeper_shipping_lag_seconds") < 30


async def test_the_loops_lag_is_measured_without_requests(gateway):
    for _ in range(100):
        page = await scrape(gateway)
        if page.value("tollkeeper_event_loop_lag_seconds_count"):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("never measured")


async def test_with_a_token_only_who_sends_it_reads_the_metrics(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, metrics_token="scrape-me")
    for headers in ({}, {"Authorization": "Bearer scrape"}, {"Authorization": f"Bearer {kit.KEY}"}):
        refused = await gateway.ask(get(**headers))
        assert refused.status == 401 and refused.error["code"] == "invalid_api_key"
        assert b"scrape-me" not in refused.body
    assert (await scrape(gateway, Authorization="Bearer scrape-me")).metrics


async def test_switched_off_there_are_no_metrics(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), metrics=False)
    assert (await gateway.chat()).status == 200
    assert (await gateway.ask(get())).status == 404


async def test_on_a_port_of_their_own_they_are_not_on_the_data_planes(start_gateway, kit):
    port = find_free_port()
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), metrics_port=port)
    assert (await gateway.ask(get())).status == 404
    gateway.port = port
    assert (await scrape(gateway)).metrics
    assert (await gateway.ask(get("/v1/models"))).status == 404
    assert (await gateway.ask(kit.request())).status == 404


def test_each_worker_has_the_next_port():
    ports = [
        GatewaySettings(workers=2, worker=worker, redis_url="redis://127.0.0.1", metrics_port=9100).own_metrics_port
        for worker in (1, 2)
    ]
    assert ports == [9100, 9101]
    assert GatewaySettings(worker=2, workers=2, redis_url="redis://127.0.0.1").own_metrics_port == 0


async def test_a_metrics_port_that_is_taken_is_refused_by_its_own_setting(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} .* TOLLKEEPER_METRICS_PORT"):
            await start_gateway(config, metrics_port=port)


async def test_only_get_is_answered(gateway):
    answer = await gateway.ask(b"POST /metrics HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n")
    assert answer.status == 405 and answer.headers["allow"] == "get"
    head = await gateway.ask(b"HEAD /metrics HTTP/1.1\r\nHost: g\r\n\r\n", has_body=False)
    assert head.status == 200


async def test_tool_calls_and_schema_failures_are_the_sums_of_the_records(start_gateway, upstream, kit):
    gateway = await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message in ({"content": None, "tool_calls": [call, call]}, {"content": "no json"}, {"content": '{"a": 1}'}):
        upstream.then(upstream.whole({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
        tools = [{"type": "function", "function": {"name": "f"}}]
        answer = await gateway.chat(model="m", tools=tools, response_format={"type": "json_object"})
        assert json.loads(answer.body)["choices"][0]["message"] == message
    page, records = await scrape(gateway), gateway.requests()
    assert [(record.tool_calls, record.schema_failed) for record in records] == [(2, None), (0, True), (0, False)]
    assert page.value("tollkeeper_tool_calls_total", model="m") == 2
    assert page.value("tollkeeper_schema_checks_total", model="m") == 2
    assert page.value("tollkeeper_schema_failures_total", model="m") == 1
