"""Processes forked from one that has imported them already, in place of `python -m MODULE`.

Nearly all of the second of CPU time that a collector's start takes is for imports. What is forked here is a process of
its own like any other, and a child of the test run: with its own environment, output and exit status. How a process
starts from nothing is shown by the tests that run `python -m` themselves.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

_ROOT: Final = Path(__file__).parents[1]
_MESSAGE_BYTES: Final = 1 << 20
_PR_SET_CHILD_SUBREAPER: Final = 36
_lock = threading.Lock()
_servers: dict[str, tuple[socket.socket, "subprocess.Popen[bytes]"]] = {}


class WarmProcess:
    """A process that was forked so, used like one of `subprocess`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; `None` while it runs."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended. Raise TimeoutExpired if it runs for `timeout` seconds more."""
        status = self.poll()
        if status is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                has_ended, _, _ = select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
            status = self.poll()
            if not has_ended or status is None:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end, if it runs."""
        self.send_signal(signal.SIGTERM)


def start(
    module: str, arguments: Sequence[str] = (), *, env: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
) -> WarmProcess:
    """Start `python -m module *arguments`. The first start of a module, which imports it, takes as long as ever."""
    message = json.dumps({"arguments": list(arguments), "env": dict(env), "folder": str(Path.cwd())}).encode()
    with _lock:
        if module not in _servers:
            _servers[module] = _serve_in_background(module)
        channel, _ = _servers[module]
        # Only here, so that no other test has to do with orphans: who forks the process ends at once, and it is ours.
        _adopt_orphans(True)
        try:
            socket.send_fds(channel, [message], [stdout.fileno(), stderr.fileno()])
            answer = channel.recv(64)
        finally:
            _adopt_orphans(False)
    assert answer, f"the process that imported {module} has ended"
    return WarmProcess(int(answer))


def run(
    module: str, *arguments: str, env: Mapping[str, str], timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    """Return how `python -m module *arguments` ended and what it said."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(module, arguments, env=env, stdout=output, stderr=errors)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([module, *arguments], status, output.read().decode(), errors.read().decode())


def end_servers() -> None:
    """End the processes that others were forked from."""
    with _lock:
        for channel, process in _servers.values():
            channel.close()
            process.wait()
        _servers.clear()


def _serve_in_background(module: str) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.warm_start", module, str(theirs.fileno())]
        return ours, subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()])


def _adopt_orphans(is_wanted: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0) == 0, os.strerror(ctypes.get_errno())


def _serve(module: str, channel: socket.socket) -> dict[str, Any]:
    """Fork a process for each message; return the message in each of them. Ends with the other side."""
    importlib.import_module(f"{module}.__main__")
    del sys.modules[f"{module}.__main__"]  # runs again, as `__main__`
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            process = os.fork()
            if process:
                os.write(writing, str(process).encode())
                os._exit(0)
            while os.getppid() == parent:  # until the test run has adopted it, and is what `getppid` returns
                time.sleep(0.001)
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, reading, writing):
                os.close(descriptor)
            channel.close()
            return dict(json.loads(message))
        os.waitpid(between, 0)  # by then the process is an orphan, and adopted
        channel.send(os.read(reading, 64))
        for descriptor in (*descriptors, reading, writing):
            os.close(descriptor)


def _main() -> None:
    module, number = sys.argv[1:]
    message = _serve(module, socket.socket(fileno=int(number)))
    os.environ.clear()
    os.environ.update(message["env"])
    os.chdir(message["folder"])
    sys.path[0] = message["folder"]
    sys.argv[1:] = message["arguments"]
    gc.unfreeze()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
