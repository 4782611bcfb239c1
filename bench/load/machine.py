"""The machine as the benchmark sees it: which core is whose, and how busy cores and processes are."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1 << 20
_LOOK_SECONDS: Final = 0.5
_CALM_SHARE: Final = 0.08


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for what is measured, one for what loads it."""

    measured: int
    load: int

    @classmethod
    def choose(cls) -> Self:
        """Return the first two cores this process may use. Raises RuntimeError if there is only one."""
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise RuntimeError("two cores are needed: one for the gateway, one for the mock and the load")
        return cls(allowed[0], allowed[1])


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Let processes that are started meanwhile run on this core alone: they inherit it from this thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process and its descendants have used: CPU seconds so far and resident MiB now."""

    cpu_seconds: float = 0.0
    rss_mib: float = 0.0


def spent_by(pid: int | None) -> Spent:
    """Read what a process tree has used; nothing for `None` or a process that is gone."""
    cpu = rss = 0.0
    for member in tree(pid) if pid else ():
        with suppress(OSError):
            fields = _stat(member)
            cpu += (int(fields[11]) + int(fields[12])) / _TICK
            rss += int(fields[21]) * _PAGE_BYTES / _MIB
    return Spent(cpu, rss)


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields after the process's name, which may hold spaces: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def busy_seconds(text: str, core: int) -> float:
    """Read from /proc/stat how long a core was busy since boot, or not ours at all (steal)."""
    for line in text.splitlines():
        name, *values = line.split()
        if name == f"cpu{core}":
            user, nice, system, _, _, irq, softirq, steal = (int(value) for value in values[:8])
            return (user + nice + system + irq + softirq + steal) / _TICK
    raise RuntimeError(f"/proc/stat has no core {core}")


def busy_now(cores: Cores) -> tuple[float, float]:
    """Return the busy seconds of both cores since boot."""
    text = Path("/proc/stat").read_text()
    return busy_seconds(text, cores.measured), busy_seconds(text, cores.load)


def wait_until_calm(cores: Cores, within_seconds: float) -> bool:
    """Wait until both cores have been nearly idle for half a second; return whether that came to be in time."""
    deadline = time.monotonic() + within_seconds
    while True:
        before, began = busy_now(cores), time.monotonic()
        time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        if all(after - then < _CALM_SHARE * seconds for after, then in zip(busy_now(cores), before, strict=True)):
            return True
        if time.monotonic() > deadline:
            return False
