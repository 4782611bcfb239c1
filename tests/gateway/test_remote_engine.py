"""An engine host reached over TCP with certificates of both sides: a process of its own, and a gateway in this one."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.engine.settings import BUILTIN_PATH
from backends.llm.host.engine_address import EngineAddress
from contracts.errors import ConfigurationError
from tests.certificates import Authority
from tests.ports import find_free_ports

MODEL = "played"


class RemoteHost:
    """`python -m bench.scripted_host` that listens on TCP as well."""

    def __init__(self, data: Path, port: int, **variables: object) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.port = port
        self.url = f"tcp://127.0.0.1:{port}"
        self.log = data / "engine.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_ENGINE_MODEL": f"{MODEL}={BUILTIN_PATH}",
            "TOLLKEEPER_ENGINE_EMBEDDER": "false",
            "TOLLKEEPER_ENGINE_LISTEN": self.url,
            "SCRIPT_STEP_SECONDS": "0.01",
            **{f"TOLLKEEPER_ENGINE_{name.upper()}": str(value) for name, value in variables.items()},
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.scripted_host"], env=environment, stdout=log, stderr=log
            )

    def stop(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


def certificates(authority: Authority, name: str, *names: str) -> dict[str, Path]:
    issued = authority.issue(name, *names)
    return {"tls_certificate": issued.certificate, "tls_key": issued.key, "tls_client_ca": authority.path}


def shown(authority: Authority) -> dict[str, Path]:
    """What a gateway shows to hosts, and trusts them by."""
    issued = authority.issue("gateway", "gateway.example")
    return {
        "engine_client_certificate": issued.certificate,
        "engine_client_key": issued.key,
        "engine_client_ca": authority.path,
    }


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def start_host(tmp_path):
    hosts: list[RemoteHost] = []

    def start(**variables):
        port = variables.pop("port", None) or find_free_ports(1)[0]
        # Each with a directory of its own: two at a time would meet at one socket, which only one of them gets.
        hosts.append(RemoteHost(tmp_path / f"host-{len(hosts)}", port, **variables))
        return hosts[-1]

    yield start
    for host in hosts:
        if host.process.poll() is None:
            host.stop()


def config(kit, url):
    return kit.configuration((MODEL, [{"name": "remote", "kind": "engine", "url": url}]))


def state(gateway):
    [found] = gateway.gateway._engines.status().values()
    return found


async def chat(gateway, **fields):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], **fields}
    return await gateway.chat(body)


async def test_a_chat_over_mutual_tls_and_a_host_that_comes_back_with_renewed_certificates(
    start_host, start_gateway, kit, authority, eventually
):
    host = start_host(**certificates(authority, "host"))
    gateway = await start_gateway(config(kit, host.url), **shown(authority))
    await eventually(lambda: state(gateway).state == "ready", 60)
    whole = await chat(gateway, max_tokens=5)
    assert (whole.status, whole.json["usage"]["completion_tokens"]) == (200, 5)
    streamed = await chat(gateway, max_tokens=5, stream=True)
    assert streamed.events[-1] == b"data: [DONE]"
    [first, _] = gateway.requests()
    assert first.count_method == "exact" and first.usage.output_tokens == 5

    # Both sides renew under another authority; the gateway's connection made after it uses what is new.
    await asyncio.to_thread(host.stop)
    renewed = Authority(authority.path.parent, "renewed")
    authority.path.write_bytes(renewed.path.read_bytes())
    renewed.issue("gateway", "gateway.example")
    again = start_host(port=host.port, **{**certificates(renewed, "host"), "tls_client_ca": renewed.path})
    await eventually(lambda: state(gateway).state == "away")
    await eventually(lambda: state(gateway).state == "ready", 60)
    assert (await chat(gateway, max_tokens=5)).status == 200
    assert await asyncio.to_thread(again.stop, signal.SIGTERM) == 0


async def test_a_host_takes_renewed_files_for_new_connections_while_it_runs(
    start_host, start_gateway, kit, authority, eventually
):
    host = start_host(**certificates(authority, "host"))
    first = await start_gateway(config(kit, host.url), **shown(authority))
    await eventually(lambda: state(first).state == "ready", 60)
    renewed = Authority(authority.path.parent, "renewed")
    trusted = shown(renewed)
    refused = await start_gateway(config(kit, host.url), **trusted)
    await eventually(lambda: "TLS with it failed" in state(refused).detail, 5)
    renewed.issue("host")
    authority.path.write_bytes(renewed.path.read_bytes())  # whom the host trusts
    await eventually(lambda: state(refused).state == "ready", 10)
    assert state(first).state == "ready", "its connection stays"
    assert "certificate reloaded" in host.log.read_text()


@pytest.mark.parametrize("case", ["the host's authority", "the host's name", "the gateway's authority", "no TLS"])
async def test_who_does_not_prove_who_it_is_gets_nothing_and_says_why(
    start_host, start_gateway, kit, authority, tmp_path, eventually, monkeypatch, case
):
    monkeypatch.setattr("backends.llm.host.host_connection._HELLO_SECONDS", 1.0)
    stranger = Authority(tmp_path, "strangers")
    theirs = certificates(stranger if case == "the host's authority" else authority, "host",
                          *(["engine.example"] if case == "the host's name" else []))  # fmt: skip
    host = start_host(**{**theirs, "tls_client_ca": authority.path})
    given = {**shown(authority), "engine_client_ca": authority.path}
    if case == "the gateway's authority":
        issued = stranger.issue("strange-gateway", "gateway.example")
        given |= {"engine_client_certificate": issued.certificate, "engine_client_key": issued.key}
    gateway = await start_gateway(config(kit, host.url), **(given if case != "no TLS" else {}))
    words = {
        "the host's authority": "TLS with it failed: unable to get local issuer certificate",
        "the host's name": "TLS with it failed: IP address mismatch",
        "the gateway's authority": "before it introduced itself; its TOLLKEEPER_ENGINE_TLS_CLIENT_CA must hold",
        "no TLS": "it printed nothing for 1 s; if it speaks TLS, set TOLLKEEPER_ENGINE_CLIENT_CERTIFICATE",
    }
    await eventually(lambda: words[case] in state(gateway).detail, 60)
    answer = await chat(gateway)
    assert (answer.status, answer.error["code"]) == (503, "engine_unavailable")
    assert words[case] in gateway.reasons[-1]
    if case == "the gateway's authority":
        assert "TLS handshake refused reason=unable to get local issuer certificate" in host.log.read_text()


async def test_without_tls_a_host_listens_on_the_loopback_interface_and_nowhere_else(
    start_host, start_gateway, kit, eventually
):
    refused = start_host(listen="tcp://0.0.0.0:9400")
    host = start_host()
    gateway = await start_gateway(config(kit, host.url))
    await eventually(lambda: state(gateway).state == "ready", 60)
    assert await asyncio.to_thread(refused.process.wait, 60) == 2
    assert (await chat(gateway, max_tokens=2)).status == 200


async def test_a_gateway_without_certificates_does_not_leave_the_machine(start_gateway, kit):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_ENGINE_CLIENT_CERTIFICATE"):
        await start_gateway(config(kit, "tcp://10.0.0.1:9400"))


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("unix:///run/engine-default.sock", True),
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://10.0.0.1:1", False),
        ("tcp://localhost.example:1", False),
    ],
)
def test_what_leaves_the_machine_is_told_by_the_address(url, is_loopback):
    assert EngineAddress.parse(url).is_loopback == is_loopback
