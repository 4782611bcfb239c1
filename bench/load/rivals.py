"""The Rust routers: each in an environment of its own, made when it is first needed, never in the base one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.load.peers import MODEL, Peer
from bench.load.processes import PinnedProcess, answers_chat, free_ports

RIVALS: Final = ("vllm-router", "sglang-router")
_PINS: Final = Path(__file__).resolve().parents[2] / "constraints" / "rivals.txt"
_INSTALL_SECONDS: Final = 600
_COMMANDS: Final = {"vllm-router": ("vllm-router",), "sglang-router": ("sglang-router", "launch")}


def environments() -> Path:
    """Return the folder of the rivals' environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tollkeeper-bench"


def install(name: str) -> Path:
    """Return a rival's environment, made now if there is none. Raises RuntimeError if it cannot be had."""
    home = environments() / name
    stamp = home / ".installed"
    pin = next(line for line in _PINS.read_text().splitlines() if line.startswith(f"{name}=="))
    if stamp.is_file() and stamp.read_text() == pin:
        return home
    steps = (
        [sys.executable, "-m", "venv", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pin],
    )
    for step in steps:
        try:
            subprocess.run(step, capture_output=True, text=True, check=True, timeout=_INSTALL_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", "") or str(error)
            raise RuntimeError(f"{pin} cannot be installed: {output.strip()[-300:]}") from error
    stamp.write_text(pin)
    return home


def start_rival(name: str, core: int, home: Path, upstream_ports: range) -> tuple[PinnedProcess, Peer]:
    """Start one before the mock's ports, round robin. Raises RuntimeError if it cannot be had or does not start."""
    environment = install(name)
    program, *rest = _COMMANDS[name]
    port = free_ports()
    urls = [f"http://127.0.0.1:{upstream}" for upstream in upstream_ports]
    command = [environment / "bin" / program, *rest, "--host", "127.0.0.1", "--port", port, "--worker-urls", *urls]
    command += ["--policy", "round_robin", "--log-level", "warn" if name == "sglang-router" else "warning"]
    command += ["--prometheus-port", free_ports(), "--max-concurrent-requests", "4096", "--queue-size", "8192"]
    folder = home / name
    folder.mkdir()
    process = PinnedProcess(name, command, core, folder)
    process.wait_for(lambda: answers_chat(port, MODEL, {}))
    return process, Peer(name, port, process.pid)
