"""What a newcomer does: every block of the README, literally and in order, on a fresh installation.

Rows: seconds from `up` to the first answer, blocks that fail, commands that common jobs take, and what an installation
takes at rest: CPU time of all processes, memory (PSS) of those without the built-in model.
"""

import argparse
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from backends.secrets.secret_files import SecretFiles
from bench.report import Report, run_bench

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
_BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_READY_SECONDS: Final = 900.0  # a busy machine takes long; how long it took is a row
_BLOCK_SECONDS: Final = 300.0
_PORTS: Final = 9
_NONE: Final[Mapping[str, str]] = {}
_IDLE_SECONDS: Final = 600.0
_QUICK_IDLE_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 60.0  # after the first answer: caches are filled, and what is loaded late is there
_SHOWN_LOG: Final = 4000  # characters of the log in an error
# The commands of jobs that the README and the docs describe; each is run, in order, after the README's blocks.
JOBS: Final[dict[str, tuple[str, ...]]] = {
    "add an upstream with a price": (
        "tollkeeper upstream add other-model --url http://127.0.0.1:8000/v1 --price 0.10 0.40",
    ),
    "make a team and a capped key": (
        "tollkeeper teams create app --tenant demo",
        "tollkeeper keys create --tenant demo --team app --name app --budget-usd 5 --budget-period month",
    ),
    "set a budget with a Slack alert": (
        "tollkeeper channels create ops --kind slack --address https://hooks.slack.com/services/T0/B0/x",
        "tollkeeper budgets create --tenant demo --level team --subject app --usd 9 --period week "
        "--threshold 80 --channel ops",
    ),
}
_MUSTS: Final = {
    "add an upstream with a price": 1,
    "make a team and a capped key": 2,
    "set a budget with a Slack alert": 2,
}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the README."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running a block came to."""

    block: Block
    status: int
    output: str


def readme_blocks(path: Path = README) -> list[Block]:
    """Return the README's blocks that are run: all but the one that installs and starts."""
    found = [Block(language, text) for language, text in _BLOCK.findall(path.read_text())]
    return [block for block in found if "make up" not in block.text]


@contextmanager
def fresh_installation(
    folder: Path, start: Sequence[str] = ("up",), *, has_dashboard: bool = False, variables: Mapping[str, str] = _NONE
) -> Iterator["Newcomer"]:
    """Start Tollkeeper in an empty folder that looks like a checkout, with settings, and stop it at the end."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, arguments in (("tollkeeper", "-m tollkeeper "), ("python", "")):
        script = folder / ".venv" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        script.chmod(0o755)
    (folder / "bench").symlink_to(ROOT / "bench")
    base = _free_base()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "120", **variables}
    # As after `source .venv/bin/activate`.
    environment["PATH"] = f"{folder / '.venv' / 'bin'}:{environment.get('PATH', os.defpath)}"
    begun = time.monotonic()
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tollkeeper", *start, "--port-base", str(base)]
            + ([] if has_dashboard else ["--no-dashboard"]),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        )
        try:
            newcomer = Newcomer(folder, base, environment, process.pid)
            newcomer.wait_for_answer(process, begun)
            yield newcomer
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()


class Newcomer:
    """Someone in a fresh checkout, with the two variables of `up` exported."""

    def __init__(self, folder: Path, port_base: int, environment: dict[str, str], pid: int) -> None:
        self.folder = folder
        self.pid = pid
        self.first_answer_seconds = 0.0
        self.port_base = port_base
        self.gateway = f"http://127.0.0.1:{port_base}"
        self._environment = environment

    def run(self, block: Block) -> Outcome:
        """Run a block as it stands."""
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        if block.language == "python":
            command = [sys.executable, "-c", block.text]
        key = SecretFiles(self.folder / ".tollkeeper" / "secrets").get("demo_key") or ""
        own = {"OPENAI_BASE_URL": f"{self.gateway}/v1", "OPENAI_API_KEY": key}
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env={**self._environment, **own},
                capture_output=True,
                text=True,
                timeout=_BLOCK_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return Outcome(block, -1, f"not done within {_BLOCK_SECONDS:g} s")
        return Outcome(block, done.returncode, done.stdout + done.stderr)

    def wait_for_answer(self, process: "subprocess.Popen[bytes]", begun: float) -> None:
        """Wait until a chat is answered. Raises RuntimeError if the installation ends or takes too long."""
        while time.monotonic() - begun < _READY_SECONDS:
            if process.poll() is not None:
                raise RuntimeError(f"`tollkeeper up` ended with status {process.returncode}:\n{self._log_end()}")
            if self._is_answered():
                self.first_answer_seconds = time.monotonic() - begun
                return
            time.sleep(0.25)
        raise RuntimeError(f"no answer within {_READY_SECONDS:g} s; up.log ends with:\n{self._log_end()}")

    def _log_end(self) -> str:
        return (self.folder / "up.log").read_text(errors="replace")[-_SHOWN_LOG:]

    def _is_answered(self) -> bool:
        key = SecretFiles(self.folder / ".tollkeeper" / "secrets").get("demo_key")
        if key is None:
            return False
        request = urllib.request.Request(
            f"{self.gateway}/v1/chat/completions",
            data=b'{"model": "tollkeeper-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}',
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def run_readme(newcomer: Newcomer, blocks: Sequence[Block]) -> Iterator[Outcome]:
    """Run blocks in order, and after them a chat with every model: no block may lead into a wall."""
    for block in blocks:
        yield newcomer.run(block)
    example = next(block for block in blocks if block.language == "python")
    for model in ("tollkeeper-5m", "scripted-1", "assistant"):
        yield newcomer.run(Block("python", example.text.replace("tollkeeper-5m", model)))


def measure(report: Report) -> None:
    """Run the README on a fresh installation; count seconds, failures and commands; then measure one at rest."""
    if getattr(report.options, "only_idle", False):
        measure_idle(report, _QUICK_IDLE_SECONDS if report.quick else _IDLE_SECONDS)
        return
    with tempfile.TemporaryDirectory() as place, fresh_installation(Path(place)) as newcomer:
        report.add("first_answer", newcomer.first_answer_seconds, "s", must=60, better="lower")
        outcomes = list(run_readme(newcomer, readme_blocks()))
        failed = [outcome for outcome in outcomes if outcome.status]
        for outcome in failed:
            print(f"failed ({outcome.status}):\n{outcome.block.text}{outcome.output}", file=sys.stderr)
        report.add("readme_blocks_failed", len(failed), "blocks", must=0, better="lower", n=len(outcomes))
        for job, commands in JOBS.items():
            done = [newcomer.run(Block("sh", command)) for command in commands]
            metric = f"commands_to_{job.replace(' ', '_').lower()}"
            if any(one.status for one in done):
                report.add_absent(metric, "commands", "a command failed: " + "".join(one.output for one in done)[-300:])
            else:
                report.add(metric, len(commands), "commands", must=_MUSTS[job], better="lower")
    measure_idle(report, _QUICK_IDLE_SECONDS if report.quick else _IDLE_SECONDS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what this bench may be told."""
    parser.add_argument("--only-idle", action="store_true", help="only what an installation takes at rest")


def measure_idle(report: Report, seconds: float) -> None:
    """Leave a fresh installation alone; add what its processes take, all together and each."""
    with tempfile.TemporaryDirectory() as place, fresh_installation(Path(place), has_dashboard=True) as newcomer:
        time.sleep(_SETTLE_SECONDS)
        before = _used(newcomer.pid)
        begun = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        after = _used(newcomer.pid)
    shares = {name: (used - before.get(name, (0.0, 0))[0]) / passed * 100 for name, (used, _) in after.items()}
    memory = {name: kept / 2**20 for name, (_, kept) in after.items()}
    report.add("idle_processor", sum(shares.values()), "% of a core", must=4, better="lower", n=int(seconds))
    without_model = sum(kept for name, kept in memory.items() if not name.startswith("backends.engine"))
    report.add("idle_memory_without_model", without_model, "MiB", must=900, better="lower")
    for name in sorted(shares):
        report.add(f"idle_processor_{name}", shares[name], "% of a core", better="lower")
        report.add(f"idle_memory_{name}", memory[name], "MiB", better="lower")


def _used(pid: int) -> dict[str, tuple[float, int]]:
    """Return CPU seconds and bytes of memory (PSS: shared pages by parts) of a process and its children, by module."""
    used: dict[str, tuple[float, int]] = {}
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        try:
            arguments, times, kept = process.cmdline(), process.cpu_times(), process.memory_full_info().pss
        except psutil.Error:
            continue  # it has just ended
        name = arguments[arguments.index("-m") + 1] if "-m" in arguments else Path(arguments[0]).name
        seconds, bytes_kept = used.get(name, (0.0, 0))
        used[name] = (seconds + times.user + times.system, bytes_kept + kept)
    return used


def _free_base() -> int:
    for base in range(21_000, 60_000, 37):
        try:
            with_all = [socket.create_server(("127.0.0.1", base + offset)) for offset in range(_PORTS)]
        except OSError:
            continue
        for one in with_all:
            one.close()
        return base
    raise RuntimeError("no free range of ports")


if __name__ == "__main__":
    sys.exit(run_bench("newcomer", measure, add_options=add_options))
