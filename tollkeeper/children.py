"""One supervised process: started so that it ends with its parent, restarted with backoff, with its output relayed."""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.processes.beat import until_beat
from backends.processes.process_watch import Answer, WatchedProcess
from contracts.errors import ConfigurationError
from tollkeeper.child_probes import ProcessorWait, is_stopped, open_probe

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_CHUNK = 65_536
_REMEMBERED_LINES = 20
_WATCH_SECONDS = 1.0
_WATCH_UP_SECONDS = 5.0  # between probes of a process that answers; a hung one has two minutes
UNUSABLE = 2  # exit status of a process with an invalid configuration

PrintLine = Callable[[str, str], None]  # process, line


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to run. It is ready when `ready_url` answers 200; if that is empty, as soon as it runs.

    `certificate`: PEM file of its certificate, if the URL is https. On shutdown, a process that `drains` first
    finishes its requests (SIGUSR1) and closes its port; one that `ends_first` is stopped before the others, which
    receive its last records.

    `alive_url` (http://, or the unix:// socket of an engine or provider host) is probed every five seconds while it
    answers, else every second; any answer shows that the process is not hung. A process that is hung for
    `hung_restart_seconds` is killed and restarted; 0: never.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_url: str = ""
    certificate: str = ""
    drains: bool = False
    ends_first: bool = False
    alive_url: str = ""
    hung_restart_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before a restart in seconds: doubles with each failure, and resets after a long healthy run."""

    first_seconds: float = 0.2
    longest_seconds: float = 10.0
    healthy_seconds: float = 30.0

    def after(self, previous_seconds: float, uptime_seconds: float) -> float:
        """Return the delay in seconds after a run of `uptime_seconds`; `previous_seconds`: last delay (0: none)."""
        if previous_seconds == 0 or uptime_seconds >= self.healthy_seconds:
            return self.first_seconds
        return min(previous_seconds * 2, self.longest_seconds)


class Child:
    """Runs one process and restarts it until `stop`. Its pid is in `<run>/NAME.pid` while it runs."""

    def __init__(self, spec: ChildSpec, run_directory: Path, print_line: PrintLine, backoff: Backoff) -> None:
        self.spec = spec
        self.restarts = 0
        self.was_ready = False
        self._pid_file = run_directory / f"{spec.name}.pid"
        self._print_line = print_line
        self._backoff = backoff
        self._process: asyncio.subprocess.Process | None = None
        self._last_lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Return the process's id; `None` between two runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def last_line(self) -> str:
        """Return its last line of output, to explain why it ended."""
        return self._last_lines[-1] if self._last_lines else "it printed nothing"

    async def run_once(self) -> int:
        """Run the process until it ends and return the exit status; negative for a signal, as in `subprocess`."""
        # An own pipe: asyncio's would hide the process's end while a grandchild keeps it open.
        reading_end, writing_end = os.pipe()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid())),
                *self.spec.command,
                env=dict(self.spec.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing_end,
                stderr=writing_end,
                # A separate session: Ctrl-C reaches only the supervisor, which stops its children in order.
                start_new_session=True,
            )
        finally:
            os.close(writing_end)
        output = asyncio.create_task(self._pass_output_on(reading_end))
        self._write_pid(process.pid)
        if self._stopping.is_set():  # stopped while it was being started
            process.kill()
        try:
            return await process.wait()
        finally:
            _end_session(process.pid)
            await output
            self._pid_file.unlink(missing_ok=True)

    def _write_pid(self, pid: int) -> None:
        """Write the pid file atomically, so that readers always find a number."""
        fresh = self._pid_file.with_suffix(".pid.new")
        fresh.write_text(f"{pid}\n")
        fresh.replace(self._pid_file)

    async def keep_running(self) -> None:
        """Run the process, and restart it whenever it ends, until `stop`.

        Raises ConfigurationError with the process's last line if it exits with the status for an invalid
        configuration before it was ever ready: a restart would fail in the same way.
        """
        watching = asyncio.create_task(self._watch(), name=f"{self.spec.name} watched")
        try:
            await self._keep_running()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _keep_running(self) -> None:
        wait_seconds = 0.0
        while not self._stopping.is_set():
            started = time.monotonic()
            status = await self.run_once()
            if self._stopping.is_set():
                return
            if status == UNUSABLE and not self.was_ready:
                raise ConfigurationError(self.last_line)
            wait_seconds = self._backoff.after(wait_seconds, time.monotonic() - started)
            self._print_line(self.spec.name, f"ended ({describe_status(status)}); again in {wait_seconds:g} s")
            self.restarts += 1
            try:
                await asyncio.wait_for(self._stopping.wait(), wait_seconds)
            except TimeoutError:
                continue

    async def _watch(self) -> None:
        """Print when the process hangs and when it answers again; kill it if it hangs for too long."""
        processor_wait = ProcessorWait()
        async with open_probe(self.spec.alive_url, self.spec.certificate) as probe:

            async def ask() -> Answer:
                asked = self.pid
                if asked is None:
                    return "unknown", ""
                if is_stopped(asked):
                    return "hung", "it is stopped"
                state, detail = await probe()
                if state != "hung":
                    processor_wait.answered(asked)
                elif watched.state == "up" and processor_wait.explains(asked):
                    return "unknown", ""  # no verdict before it has had processor time
                return state, detail

            watched, pid = WatchedProcess(self.spec.name, ask, self._tell), self.pid
            while True:
                if pid != self.pid:
                    watched.restarted()
                    pid = self.pid
                await watched.look()
                limit = self.spec.hung_restart_seconds
                if limit and watched.hung_seconds >= limit and pid is not None and pid == self.pid:
                    self._print_line(self.spec.name, f"has been hung for {limit:g} s; killed")
                    _end_session(pid)
                    watched.restarted()
                await asyncio.sleep(until_beat(_WATCH_UP_SECONDS if watched.state == "up" else _WATCH_SECONDS))

    def _tell(self, watched: WatchedProcess) -> None:
        limit = self.spec.hung_restart_seconds
        if watched.state == "hung":
            then = f"restarted if that lasts for {limit:g} s" if limit else "not restarted for that"
            self._print_line(self.spec.name, f"hung: {watched.detail}; {then}")
        elif watched.state == "up":
            self._print_line(self.spec.name, "answers again")

    def drain(self) -> None:
        """Signal the process to refuse new requests and finish those in progress."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGUSR1)

    async def stop(self, grace_seconds: float) -> None:
        """Stop the process: SIGTERM, wait `grace_seconds`, then SIGKILL for all processes left in its session."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), grace_seconds)
            except TimeoutError:
                self._print_line(self.spec.name, f"did not end within {grace_seconds:g} s; killed")
                _end_session(process.pid)
        await process.wait()

    async def _pass_output_on(self, reading_end: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading_end, "rb", buffering=0)
        )
        rest = b""
        while chunk := await reader.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _CHUNK:  # limits the length of a line
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(line)
        if rest:
            self._say(rest)
        transport.close()

    def _say(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        self._last_lines.append(text)
        self._print_line(self.spec.name, text)


def _end_session(leader: int) -> None:
    # Processes that it leaves behind would hold its ports and files.
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass  # no process is left, as expected


def describe_status(status: int) -> str:
    """Return how a process ended, as text: "status 1" or "SIGKILL"."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
