"""The command line and a gateway of this machine that speaks TLS: what is started, asked, and looked at."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop
import yaml

from backends.network.tls import days_left
from contracts.errors import ConfigurationError
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.certificates import Authority, Issued
from tollkeeper.children import ChildSpec
from tollkeeper.doctor import examine
from tollkeeper.gateway_client import engine_states, first_model
from tollkeeper.options import default_gateway
from tollkeeper.plan import Choices, plan
from tollkeeper.ports import Ports
from tollkeeper.supervisor import ProcessTimeouts, Stage, Supervisor

KEY = "tk-" + "A" * 43
QUICK = {"TOLLKEEPER_STORE_URL": "http://127.0.0.1:1", "PATH": os.environ["PATH"]}


@pytest.fixture
def issued(tmp_path: Path) -> Issued:
    """A certificate whose name is not the address at which the command line reaches the gateway."""
    return Authority(tmp_path).issue("gateway", "gateway.example")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    target = {"name": "s1", "kind": "scripted"}
    content = {
        "keys": [{"key": KEY, "tenant": "acme"}],
        "pools": [{"name": "p", "targets": [target]}],
        "models": [{"name": "m", "pool": "p"}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_what_up_starts_and_says_is_https_where_the_gateway_has_a_certificate() -> None:
    choices = Choices(Path("data"), Ports(), certificate="/etc/tls.pem")
    specs = {spec.name: spec for stage in plan(choices, {}) for spec in stage.children}
    assert specs["gateway"].ready_url.startswith("https://") and specs["gateway"].certificate == "/etc/tls.pem"
    assert specs["control"].ready_url.startswith("http://") and not specs["control"].certificate
    assert specs["dashboard"].environment["TOLLKEEPER_GATEWAY_URL"] == choices.addresses()["gateway"]
    assert Choices(Path("data"), Ports()).addresses()["gateway"].startswith("http://")


def test_the_gateways_url_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for certificate, scheme in (("", "http"), ("/etc/tls.pem", "https")):
        monkeypatch.setenv("TOLLKEEPER_TLS_CERTIFICATE", certificate)
        assert default_gateway().startswith(f"{scheme}://127.0.0.1:")


async def test_the_supervisor_finds_a_gateway_with_tls_ready(
    tmp_path: Path, issued: Issued, config: Path, free_ports
) -> None:
    [port] = free_ports(1)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    environment |= {
        "TOLLKEEPER_DATA": str(tmp_path / "data"),
        "TOLLKEEPER_GATEWAY_CONFIG": str(config),
        "TOLLKEEPER_GATEWAY_PORT": str(port),
        "TOLLKEEPER_TLS_CERTIFICATE": str(issued.certificate),
        "TOLLKEEPER_TLS_KEY": str(issued.key),
    }
    command = (sys.executable, "-P", "-m", "gateway")
    child = ChildSpec("gateway", command, environment, f"https://127.0.0.1:{port}/ready", str(issued.certificate))
    run = tmp_path / "run"
    run.mkdir()
    lines: list[str] = []
    supervisor = Supervisor(
        [Stage((child,))], run, lambda _, line: lines.append(line), ProcessTimeouts(ready_seconds=20)
    )
    try:
        await supervisor.start()
        for variables, status in ((environment, 0), (environment | {"TOLLKEEPER_TLS_CERTIFICATE": ""}, 1)):
            probe = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway.process.probe", env=variables, stderr=subprocess.PIPE
            )
            _, said = await probe.communicate()
            assert probe.returncode == status, said
    finally:
        await supervisor.stop()


def test_the_command_line_asks_a_gateway_with_tls_and_no_impostor(
    tmp_path: Path, issued: Issued, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        settings = GatewaySettings(
            data=tmp_path / "data",
            gateway_config=config,
            gateway_port=0,
            tls_certificate=issued.certificate,
            tls_key=issued.key,
        )
        gateway = Gateway(settings)
        await gateway.start()
        url = f"https://127.0.0.1:{gateway.port}"
        try:
            monkeypatch.setenv("TOLLKEEPER_TLS_CERTIFICATE", str(issued.certificate))
            assert await first_model(url, KEY) == "m" and await engine_states(url) == {}
            other = Authority(tmp_path, "others").issue("other", "gateway.example")
            monkeypatch.setenv("TOLLKEEPER_TLS_CERTIFICATE", str(other.certificate))
            assert await first_model(url, KEY) is None
        finally:
            await gateway.stop()

    uvloop.run(ask())


@pytest.mark.parametrize(("days", "status"), [(15, "ok"), (14, "warn"), (-1, "warn")])
def test_the_doctor_looks_at_the_certificates_last_day(tmp_path: Path, days: int, status: str) -> None:
    issued = Authority(tmp_path).issue("gateway", days=days)
    environment = QUICK | {
        "TOLLKEEPER_TLS_CERTIFICATE": str(issued.certificate),
        "TOLLKEEPER_TLS_KEY": str(issued.key),
    }
    [check] = [
        one for one in examine(tmp_path, Ports.from_base(24000), environment).checks if one.name == "certificate"
    ]
    assert check.status == status and ("expired" in check.detail) == (days < 0)
    assert days_left(issued.certificate) == pytest.approx(days, abs=0.01)


@pytest.mark.parametrize("case", ["half", "another's key", "missing"])
def test_the_doctor_fails_on_a_certificate_that_cannot_be_used(tmp_path: Path, case: str) -> None:
    authority = Authority(tmp_path)
    issued, other = authority.issue("gateway"), authority.issue("other")
    environment = QUICK | {"TOLLKEEPER_TLS_CERTIFICATE": str(issued.certificate)}
    if case != "half":
        environment |= {"TOLLKEEPER_TLS_KEY": str(other.key if case == "another's key" else tmp_path / "missing.key")}
    checks = examine(tmp_path, Ports.from_base(24000), environment).checks
    assert [check.status for check in checks if check.name == "certificate"] == ["fail"]


def test_a_file_that_is_no_certificate_has_no_last_day(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"a\.pem holds no certificate"):
        days_left(tmp_path / "a.pem")
