"""How long a gateway makes others wait: answers of `/health`, beside a process that only sleeps.

Both are processes of their own, on the machine's monotonic clock, so that neither waits for what a scenario does.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_PROBE: Final = """
import json, select, socket, sys, time
port, every = int(sys.argv[1]), 0.002
line = socket.create_connection(("127.0.0.1", port)) if port else None
found = []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    began = time.monotonic()
    if line is None:
        time.sleep(every)
        found.append((began, max(time.monotonic() - began - every, 0)))
        continue
    line.sendall(b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    answer = b""
    while not answer.endswith(b"}"):
        answer += line.recv(4096)
    found.append((began, time.monotonic() - began))
    time.sleep(every)
print(json.dumps(found))
"""
_END_SECONDS: Final = 60.0


@dataclass(slots=True)
class Delays:
    """What both processes have seen: (begin, seconds) each."""

    answers: list[tuple[float, float]] = field(default_factory=list)
    sleeps: list[tuple[float, float]] = field(default_factory=list)

    def longest_ms(self, began: float, ended: float) -> float:
        """Return the longest answer that overlaps a time, less the longest delay of the process that sleeps."""
        stalls = [_longest(samples, began, ended) for samples in (self.answers, self.sleeps)]
        return max(stalls[0] - stalls[1], 0) * 1000


@contextmanager
def watching(port: int) -> Iterator[Delays]:
    """Watch a gateway; what was seen is there at the end."""
    found = Delays()
    command = [sys.executable, "-c", _PROBE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    probes = [subprocess.Popen([*command, str(one)], **pipes) for one in (port, 0)]  # type: ignore[call-overload]
    try:
        for probe in probes:
            probe.stdout.readline()
        yield found
        found.answers, found.sleeps = [json.loads(probe.communicate("\n", _END_SECONDS)[0]) for probe in probes]
    finally:
        for probe in probes:
            probe.kill()
            probe.wait()


def _longest(samples: list[tuple[float, float]], began: float, ended: float) -> float:
    return max((took for at, took in samples if at + took >= began and at <= ended), default=0.0)


def memory_bytes(process_id: int, what: str) -> int:
    """Return what the kernel says of a process's memory: `VmRSS` now, or `VmHWM` at most since it was reset."""
    with open(f"/proc/{process_id}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what))


def reset_peak(process_id: int) -> None:
    """Let the peak of a process's memory begin again."""
    with open(f"/proc/{process_id}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
