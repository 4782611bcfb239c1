"""An engine host of kind vllm under supervision: set up first, kept running, and no danger to anything else."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from contracts.errors import ConfigurationError
from tollkeeper.children import Backoff, Child, ChildSpec
from tollkeeper.vllm_environment import VllmEnvironment
from tollkeeper.vllm_host import VllmHost

STAYS = "import signal; signal.pause()"
REFUSES = "import sys; print('engine: no GPU'); sys.exit(2)"


class Rig:
    """A host, its environment that fails as often as told, and what was said."""

    def __init__(self, run: Path, script: str, failures: int = 0) -> None:
        self.said: list[str] = []
        self.failures = failures
        self.script = script
        self.run = run
        self.host = VllmHost(self, self.child, lambda name, line: self.said.append(line), retry_seconds=0.01)

    async def set_up(self, say: Callable[[str], None]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConfigurationError("no network")

    def child(self) -> Child:
        spec = ChildSpec("engine", (sys.executable, "-c", self.script), dict(os.environ))
        return Child(spec, self.run, lambda name, line: self.said.append(line), Backoff(first_seconds=0.05))

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(6000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within 60 s: {self.said}")


async def test_an_installation_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, STAYS, failures=2)
    running = asyncio.create_task(rig.host.run())
    await rig.until(lambda: rig.host.child is not None and rig.host.child.pid)
    assert [line for line in rig.said if "no network; its models answer 503" in line] == rig.said[:2]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await rig.host.stop(5)
    assert rig.host.child is None


async def test_a_host_that_cannot_run_as_configured_is_tried_again_and_ends_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, REFUSES)
    running = asyncio.create_task(rig.host.run())
    await rig.until(lambda: sum("engine: no GPU; its models answer 503" in line for line in rig.said) >= 2)
    rig.script = STAYS
    await rig.until(lambda: rig.host.child is not None and rig.host.child.pid)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await rig.host.stop(5)


def test_vllm_has_a_folder_and_a_list_of_its_own(tmp_path: Path) -> None:
    environment = VllmEnvironment(tmp_path)
    assert environment.python == tmp_path / ".venv-vllm" / "bin" / "python"
    assert not environment.is_ready
    assert VllmEnvironment(tmp_path, "/opt/vllm/bin/python").is_ready
