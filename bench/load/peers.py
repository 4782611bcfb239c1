"""What is asked: the mock itself, nginx, a bare relay, the least gateway, a gateway, a rival; and how they start."""

import contextlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Final

from backends.processes.compiled import find_compiled
from bench.load.processes import PinnedProcess, answers_chat, free_ports
from tollkeeper.compile import CannotCompile, compile_modules

MODEL: Final = "mock-model"
BARE_RELAY: Final = "bare_relay"
LEAST_GATEWAY: Final = "least_gateway"
_CONFIGURATION: Final = Path(__file__).resolve().parent / "nginx.conf"
_RELAY: Final = Path(__file__).resolve().parents[1] / "bare_relay.py"
_LEAST: Final = """
import sys
from pathlib import Path
from backends.processes.compiled import use_compiled
use_compiled(Path(sys.argv.pop(1)))
from bench.least_gateway import main
main()
"""


class NotInstalled(RuntimeError):
    """What is compared with is not on this machine."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where it listens, what a request to it needs, and whose CPU time counts (`None`: nobody's)."""

    name: str
    port: int
    pid: int | None
    model: str = MODEL
    headers: Mapping[str, str] = field(default_factory=dict)
    is_traced: bool = False  # every request belongs to a trace of its own
    counts_as: str = ""  # the peer whose requests these are; empty: itself
    path: str = ""  # empty: chats
    body: Path | None = None  # what is sent instead of a chat, with 19 zeros where the request's number is

    @property
    def counted(self) -> str:
        """Return the name under which its requests are counted."""
        return self.counts_as or self.name


def start_nginx(core: int, home: Path, upstream_port: int) -> tuple[PinnedProcess, Peer]:
    """Start nginx before the mock. Raises NotInstalled, or RuntimeError if it does not start."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if program is None:
        raise NotInstalled("there is no nginx: apt-get install nginx-light")
    folder = home / "nginx"
    folder.mkdir()
    port = free_ports()
    template = Template(_CONFIGURATION.read_text())
    # What is nginx's own variable or none at all stays as it is.
    (folder / "nginx.conf").write_text(template.safe_substitute(port=port, upstream=upstream_port))
    process = PinnedProcess("nginx", [program, "-p", folder, "-c", folder / "nginx.conf"], core, folder)
    process.wait_for(lambda: answers_chat(port, MODEL, {}))
    return process, Peer("nginx", port, process.pid)


def start_bare_relay(core: int, home: Path, upstream_port: int) -> tuple[PinnedProcess, Peer]:
    """Start the least that a Python process in between does, before the mock. Raises RuntimeError if it does not."""
    port = free_ports()
    process = PinnedProcess(BARE_RELAY, [sys.executable, _RELAY, port, upstream_port], core, home)
    process.wait_for(lambda: answers_chat(port, MODEL, {}))
    return process, Peer(BARE_RELAY, port, process.pid)


def start_least_gateway(core: int, home: Path, upstream_port: int) -> tuple[PinnedProcess, Peer]:
    """Start the least that a gateway does in Python, compiled where the gateway is, before the mock.

    Raises RuntimeError if it does not start.
    """
    folder = home / LEAST_GATEWAY
    if find_compiled().state == "compiled":
        with contextlib.suppress(CannotCompile):
            compile_modules(["bench/least_gateway"], folder)
    port = free_ports()
    command = [sys.executable, "-c", _LEAST, folder, port, upstream_port, home / f"{LEAST_GATEWAY}.journal"]
    process = PinnedProcess(LEAST_GATEWAY, command, core, home)
    process.wait_for(lambda: answers_chat(port, MODEL, {}))
    return process, Peer(LEAST_GATEWAY, port, process.pid, headers={"Authorization": "Bearer tk-least"})
