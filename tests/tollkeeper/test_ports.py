"""Ports: their layout, what is refused, and who holds one."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.errors import ConfigurationError
from tests.ports import find_free_port
from tollkeeper.plan import Choices, external_store, plan
from tollkeeper.ports import Ports, is_free, require_free


@pytest.fixture
def held() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_port_base_lays_all_ports_out_in_the_documented_order() -> None:
    ports = Ports.from_base(20000)
    assert (ports.gateway, ports.control, ports.dashboard) == (20000, 20001, 20003)
    assert (ports.collector, ports.collector_health, ports.store_http, ports.store_native) == (
        20005,
        20006,
        20007,
        20008,
    )
    assert len(set(ports.by_name().values())) == len(ports.by_name())


@pytest.mark.parametrize(("base", "is_possible"), [(0, False), (1, True), (65527, True), (65528, False)])
def test_a_port_base_must_leave_room(base: int, is_possible: bool) -> None:
    if is_possible:
        assert Ports.from_base(base).store_native == base + 8
    else:
        with pytest.raises(ConfigurationError, match=f"--port-base {base} leaves no room"):
            Ports.from_base(base)


@pytest.mark.parametrize("text", ["0", "65536", "http", "-1", "8080.5"])
def test_a_variable_that_is_no_port_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_CONTROL_PORT is"):
        Ports.from_environment({"TOLLKEEPER_CONTROL_PORT": text})


def test_ports_travel_through_the_environment_unchanged() -> None:
    ports = Ports.from_base(23000)
    assert Ports.from_environment(ports.environment()) == ports


def test_a_port_in_use_is_named_with_its_holder_and_the_remedy(held: int) -> None:
    assert not is_free("127.0.0.1", held)
    with pytest.raises(ConfigurationError) as refused:
        require_free("127.0.0.1", {"gateway": held})
    assert f"port {held} (gateway) is in use by this process" in refused.value.message
    assert "--port-base" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host"])
def test_an_address_that_is_not_this_machines_is_not_called_a_port_in_use(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot listen on {host} port 24000 .*--host") as refused:
        require_free(host, {"gateway": 24000})
    assert "in use" not in refused.value.message


def test_the_store_the_collector_and_the_engine_stay_on_loopback_whatever_the_host(tmp_path: Path) -> None:
    choices = Choices(data=tmp_path, ports=Ports.from_base(21000), host="0.0.0.0")
    specs = {spec.name: spec for stage in plan(choices, os.environ) for spec in stage.children}
    hosts = {name: spec.environment["TOLLKEEPER_HOST"] for name, spec in specs.items()}
    assert hosts == {
        "store": "127.0.0.1",
        "migrations": "127.0.0.1",
        "collector": "127.0.0.1",
        "control": "0.0.0.0",
        "engine": "127.0.0.1",
        "gateway": "0.0.0.0",
        "analytics": "0.0.0.0",
        "dashboard": "0.0.0.0",
    }
    assert choices.addresses()["gateway"] == "http://127.0.0.1:21000"


def test_an_external_store_is_not_started_and_reaches_every_process(tmp_path: Path) -> None:
    choices = Choices(tmp_path, Ports(), store_url="http://clickhouse:8123", has_dashboard=False)
    stages = plan(choices, {"PATH": "/bin"})
    assert [[spec.name for spec in stage.children] for stage in stages] == [
        ["migrations"],
        ["collector", "control", "engine"],
        ["gateway", "analytics"],
    ]
    assert {spec.environment["TOLLKEEPER_STORE_URL"] for stage in stages for spec in stage.children} == {
        "http://clickhouse:8123"
    }
    assert "store_http" not in choices.listening() and "dashboard" not in choices.listening()


@pytest.mark.parametrize(
    ("url", "external"),
    [
        ("", False),
        ("http://127.0.0.1:{}", False),
        ("http://localhost:{}/", False),
        ("http://127.0.0.1:1", True),
        ("https://127.0.0.1:{}", True),
        ("http://clickhouse:{}", True),
        ("http://127.0.0.1", True),
        ("http://127.0.0.1:port", True),
    ],
)
def test_the_embedded_stores_own_address_starts_the_embedded_store(url: str, external: bool) -> None:
    ports = replace(Ports(), store_http=find_free_port())
    stated = url.format(ports.store_http)
    assert external_store(stated, ports) == (stated if external else "")


def test_a_server_at_the_embedded_stores_address_is_used_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = replace(Ports(), store_http=server.getsockname()[1])
        assert external_store(f"http://127.0.0.1:{ports.store_http}", ports) == f"http://127.0.0.1:{ports.store_http}"
