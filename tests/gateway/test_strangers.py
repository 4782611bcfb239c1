"""What a stranger learns of the data plane: whether it is ready, and nothing else."""

import json

import pytest

TOKEN = "tk-metrics-of-this-test"
FORWARDED = "X-Forwarded-For: 203.0.113.9\r\n"  # how a request of a stranger comes through a proxy on this machine


@pytest.fixture
def asked(start_gateway, kit):
    """Start a gateway with these settings and return a function that asks it."""

    async def start(**settings):
        gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), **settings)

        async def ask(path, more="", token=""):
            shown = f"Authorization: Bearer {token}\r\n" if token else ""
            return await gateway.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}{shown}\r\n".encode())

        return gateway, ask

    return start


async def test_a_stranger_is_told_the_status_alone(asked):
    gateway, ask = await asked()
    ready = await ask("/ready", FORWARDED)
    assert (ready.status, ready.json) == (200, {"status": "ready"})
    health = await ask("/health", FORWARDED)
    assert (health.status, health.json) == (200, {"status": "ok"})
    metrics = await ask("/metrics", FORWARDED)
    assert metrics.status == 401 and "metrics_token" in metrics.error["message"]
    for answer in (ready, health, metrics):
        for told in ("scripted-1", gateway.gateway._settings.name.partition(":")[0], str(gateway.gateway.port)):
            assert told not in json.dumps(answer.json)


@pytest.mark.parametrize("header", ["Forwarded: for=203.0.113.9", "X-Real-IP: 203.0.113.9", "Via: 1.1 proxy"])
async def test_whatever_a_proxy_says_a_forwarded_request_is_a_strangers(asked, header):
    _, ask = await asked()
    assert (await ask("/ready", f"{header}\r\n")).json == {"status": "ready"}
    assert (await ask("/metrics", f"{header}\r\n")).status == 401


async def test_callers_of_this_machine_and_holders_of_the_secret_file_are_told_all(asked):
    gateway, ask = await asked()
    token = (gateway.gateway._settings.data / "secrets" / "metrics_token").read_text().strip()
    for answer in (await ask("/ready"), await ask("/ready", FORWARDED, token)):
        assert answer.json["connections"] == 1
    for answer in (await ask("/metrics"), await ask("/metrics", FORWARDED, token)):
        assert answer.status == 200 and b"tollkeeper_connections" in answer.body
    assert (await ask("/metrics", FORWARDED, token + "x")).status == 401
    assert (await ask("/ready", FORWARDED, token + "x")).json == {"status": "ready"}


async def test_a_token_that_is_set_is_asked_of_everybody_for_metrics(asked):
    gateway, ask = await asked(metrics_token=TOKEN)
    assert (await ask("/metrics")).status == 401
    assert (await ask("/metrics", FORWARDED, TOKEN)).status == 200
    assert (await ask("/ready", FORWARDED, TOKEN)).json["connections"] == 1
    assert not (gateway.gateway._settings.data / "secrets" / "metrics_token").exists()
