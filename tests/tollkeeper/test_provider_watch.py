"""The provider host under supervision: only while it is needed, set up first, and no danger to anything else."""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import ConfigurationError
from tollkeeper import own_environment
from tollkeeper.children import Backoff, Child, ChildSpec
from tollkeeper.cli import app
from tollkeeper.own_environment import OwnEnvironment, run_installer
from tollkeeper.plan import Choices, plan, provider_host
from tollkeeper.ports import Ports
from tollkeeper.provider_environment import ProviderEnvironment
from tollkeeper.provider_watch import ProviderWatch, WatchTimes
from tollkeeper.vllm_environment import VllmEnvironment

TIMES = WatchTimes(poll_seconds=0.01, idle_seconds=0.1, retry_seconds=0.05)
STAYS = "import signal; signal.pause()"
REFUSES = "import sys; print('providers: no'); sys.exit(2)"


class Environment:
    """An environment whose setting up fails as often as it is told to."""

    def __init__(self) -> None:
        self.failures = 0
        self.set_ups = 0

    async def set_up(self, say: Callable[[str], None]) -> None:
        self.set_ups += 1
        if self.failures:
            self.failures -= 1
            raise ConfigurationError("no network")


class Rig:
    """A watch, what it is told, and what it said."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.is_needed: bool | None = None
        self.environment = Environment()
        self.said: list[str] = []
        self.script = STAYS
        self.watch = ProviderWatch(
            self.ask, self.environment, self.child, lambda name, line: self.said.append(line), TIMES
        )

    async def ask(self) -> bool | None:
        return self.is_needed

    def child(self) -> Child:
        spec = ChildSpec("providers", (sys.executable, "-c", self.script), dict(os.environ))
        return Child(spec, self.run, lambda name, line: self.said.append(line), Backoff(first_seconds=0.05))

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(6000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within 60 s: {self.said}")

    @property
    def pid(self) -> int | None:
        return None if self.watch.child is None else self.watch.child.pid


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    watching = asyncio.create_task(rig.watch.run())
    yield rig
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await rig.watch.stop(1)


async def test_nothing_is_installed_or_started_until_a_target_needs_it(rig: Rig) -> None:
    for said in (None, False):
        rig.is_needed = said
        await asyncio.sleep(0.1)
        assert (rig.environment.set_ups, rig.pid) == (0, None)
    rig.is_needed = True
    await rig.until(lambda: rig.pid)
    assert rig.environment.set_ups == 1


async def test_a_host_that_dies_is_started_again(rig: Rig) -> None:
    rig.is_needed = True
    await rig.until(lambda: rig.pid)
    first = rig.pid
    assert first is not None
    os.kill(first, 9)
    await rig.until(lambda: rig.pid not in (None, first))


async def test_a_host_that_nobody_needs_any_more_is_ended(rig: Rig) -> None:
    rig.is_needed = True
    await rig.until(lambda: rig.pid)
    rig.is_needed = None  # the gateway does not answer: that says nothing
    await asyncio.sleep(0.2)
    assert rig.pid is not None
    rig.is_needed = False
    await rig.until(lambda: rig.watch.child is None)
    rig.is_needed = True
    await rig.until(lambda: rig.pid)


async def test_an_installation_that_fails_is_said_and_tried_again(rig: Rig) -> None:
    rig.environment.failures = 1
    rig.is_needed = True
    await rig.until(lambda: rig.pid)
    assert any("no network" in line for line in rig.said)
    assert rig.environment.set_ups == 2


async def test_a_host_that_cannot_run_is_said_and_ends_nothing_else(rig: Rig) -> None:
    rig.script = REFUSES
    rig.is_needed = True
    await rig.until(lambda: any("providers: no;" in line for line in rig.said))
    rig.script = STAYS
    await rig.until(lambda: rig.pid)


def test_providers_keys_go_to_the_provider_host_alone() -> None:
    environment = {
        "TOLLKEEPER_PROVIDERS_KEYS": "env:*_API_KEY, file:/run/secrets/*",
        "ANTHROPIC_API_KEY": "secret",
        "OTHER": "x",
    }
    choices = Choices(Path("/data/tk"), Ports())
    host = provider_host(choices, environment, Path("/venv/bin/python"))
    assert host.environment["ANTHROPIC_API_KEY"] == "secret"
    assert host.command[0] == "/venv/bin/python"
    for stage in plan(choices, environment):
        for child in stage.children:
            assert child.name != "providers"
            assert "ANTHROPIC_API_KEY" not in child.environment
            assert child.environment["OTHER"] == "x"


def test_an_environment_is_ready_once_it_holds_the_versions_that_are_listed(tmp_path: Path) -> None:
    (tmp_path / "constraints").mkdir()
    versions = tmp_path / "constraints" / "providers.txt"
    versions.write_text("litellm==1\n")
    stamp = tmp_path / ".venv-providers" / ".installed"
    stamp.parent.mkdir()

    def is_ready() -> bool:
        return ProviderEnvironment(tmp_path).is_ready

    assert not is_ready()
    stamp.write_text(hashlib.sha256(versions.read_bytes()).hexdigest())
    assert is_ready()
    versions.write_text("litellm==2\n")
    assert not is_ready()
    assert ProviderEnvironment(tmp_path, "/opt/python").is_ready, "another Python is its owner's matter"


async def test_a_folder_that_cannot_be_written_is_a_fault_like_any_other(tmp_path: Path) -> None:
    (tmp_path / ".venv-providers" / ".installed").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="venv-providers"):
        await ProviderEnvironment(tmp_path, installs=True).set_up(lambda line: None)


@pytest.mark.parametrize(
    ("environment", "command"), [(ProviderEnvironment, "make providers"), (VllmEnvironment, "make vllm")]
)
async def test_nothing_is_installed_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., OwnEnvironment], command: str
) -> None:
    ran: list[tuple[str, ...]] = []

    async def note(*words: str, name: str = "") -> None:
        ran.append(words)

    monkeypatch.setattr(own_environment, "run_installer", note)
    (tmp_path / "constraints").mkdir()
    for name in ("providers.txt", "vllm.txt"):
        (tmp_path / "constraints" / name).write_text("litellm==1\n")
    with pytest.raises(ConfigurationError, match=f"is not installed in .*{command}.*--install"):
        await environment(tmp_path).set_up(lambda line: None)
    assert not ran and not list(tmp_path.glob(".venv*"))
    said: list[str] = []
    asked = environment(tmp_path, installs=True)
    asked.python.parent.mkdir(parents=True)
    await asked.set_up(said.append)
    assert len(ran) == 2 and asked.is_ready

    ran.clear()
    said.clear()
    for name in ("providers.txt", "vllm.txt"):
        (tmp_path / "constraints" / name).write_text("litellm==2\n")
    await environment(tmp_path).set_up(said.append)
    assert not ran and command in said[0], "what was installed is used, with a warning"


def test_up_runs_no_installer_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Choices] = []

    def up(choices: Choices, *rest: object) -> int:
        chosen.append(choices)
        return 0

    monkeypatch.setattr("tollkeeper.running.run_up", up)
    for words in (["up"], ["up", "--install"], ["demo"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert [choices.installs for choices in chosen] == [False, True, False]


async def test_an_installation_that_fails_says_the_last_line() -> None:
    with pytest.raises(ConfigurationError, match="cannot be set up: and why$"):
        await run_installer(sys.executable, "-c", "print('much'); print('and why'); raise SystemExit(1)")
