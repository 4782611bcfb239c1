"""The bench with everything on it: mock, client and measurements, samples of several peers in turn."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from bench.load.machine import Cores, busy_now, pinned_to, spent_by, wait_until_calm
from bench.load.peers import MODEL, Peer
from bench.load.processes import PinnedProcess, answers_chat, free_ports
from bench.load.result import Load, LoadResult, parse_result
from bench.load.sample import Sample, Series
from bench.load.tools import Tools

MOCK_PORTS: Final = 4  # so that a router has several workers
_INTO_WARMTH_SECONDS: Final = 0.1  # CPU is looked at from so long after the warm-up
_BEFORE_END_SECONDS: Final = 0.2  # ... until so long before the end
_END_SECONDS: Final = 30.0
_TRAIL_SECONDS: Final = 0.25
_LEAST_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a disturbed sample is repeated, and how long an idle machine is waited for before each."""

    repetitions: int
    calm_seconds: float


class Rig:
    """A mock upstream that runs, and a client to run. `with` starts and ends the mock."""

    def __init__(self, cores: Cores, home: Path, patience: Patience) -> None:
        self.cores = cores
        self._home = home
        self._patience = patience
        self._tools = Tools.build(home)
        self._cleanup = ExitStack()
        self._load_pids: list[int] = []
        self.started: Counter[str] = Counter()  # requests, by peer, over everything
        self.replies: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.disturbed = 0
        self.mock_port = 0

    def __enter__(self) -> Self:
        self.mock_port = free_ports(MOCK_PORTS)
        command = [self._tools.mock, "-p", self.mock_port, "-k", MOCK_PORTS]
        mock = PinnedProcess("mock", command, self.cores.load, self._home)
        self._cleanup.callback(mock.stop)
        mock.wait_for(lambda: answers_chat(self.mock_port, MODEL, {}))
        self._load_pids.append(mock.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def direct(self) -> Peer:
        """Return the mock itself: what nothing in between costs."""
        return Peer("direct", self.mock_port, None)

    @property
    def mock_target(self) -> dict[str, str]:
        """Return the mock as a gateway's target."""
        return {"kind": "openai_http", "url": f"http://127.0.0.1:{self.mock_port}/v1"}

    @property
    def mock_ports(self) -> range:
        """Return all ports of the mock."""
        return range(self.mock_port, self.mock_port + MOCK_PORTS)

    def counts_as_load(self, pid: int) -> None:
        """Record another process on the load's core for ours."""
        self._load_pids.append(pid)

    def alternate(self, peers: Sequence[Peer], load: Load, rounds: int) -> Series:
        """Measure all peers in turn, the given number of times; every other time in the opposite order."""
        series = Series([peer.name for peer in peers])
        for turn in range(rounds):
            for peer in peers if turn % 2 == 0 else reversed(peers):
                series.add(peer.name, self.measure(peer, load))
        self.disturbed += series.disturbed
        return series

    def measure(self, peer: Peer, load: Load) -> Sample:
        """Measure once, and again as often as is allowed while others disturb it."""
        for repetition in range(self._patience.repetitions + 1):
            if repetition:
                time.sleep(_PAUSE_SECONDS)
            if self._patience.calm_seconds:
                wait_until_calm(self.cores, self._patience.calm_seconds)
            sample = self.measure_once(peer, load)
            if not sample.is_disturbed:
                break
        return sample

    def measure_once(self, peer: Peer, load: Load) -> Sample:
        """Measure at once, no matter who disturbs it."""
        sample = self._sample(peer, load)
        print(f"{peer.name}: {sample.brief}", file=sys.stderr)
        return sample

    def trail(self, peer: Peer, load: Load, requests_so_far: Callable[[], int]) -> list[tuple[float, float]]:
        """Load without a pause and note (requests so far, resident MiB) four times a second."""
        client = self._start_client(peer, load)
        points = []
        while client.poll() is None:
            points.append((float(requests_so_far()), spent_by(peer.pid).rss_mib))
            time.sleep(_TRAIL_SECONDS)
        self._finish(client, peer, load)
        return points

    def _sample(self, peer: Peer, load: Load) -> Sample:
        client = self._start_client(peer, load)
        pids = [*self._load_pids, client.pid]
        time.sleep(load.warm_up_seconds + _INTO_WARMTH_SECONDS)
        began, busy, peer_before = time.monotonic(), busy_now(self.cores), spent_by(peer.pid)
        load_before = sum(spent_by(pid).cpu_seconds for pid in pids)
        time.sleep(max(load.seconds - _INTO_WARMTH_SECONDS - _BEFORE_END_SECONDS, _LEAST_SECONDS))
        seconds, busy_after, peer_after = time.monotonic() - began, busy_now(self.cores), spent_by(peer.pid)
        load_after = sum(spent_by(pid).cpu_seconds for pid in pids)
        result = self._finish(client, peer, load)
        return Sample(
            result,
            measured_cores=(peer_after.cpu_seconds - peer_before.cpu_seconds) / seconds,
            load_cores=(load_after - load_before) / seconds,
            busy=((busy_after[0] - busy[0]) / seconds, (busy_after[1] - busy[1]) / seconds),
            rss_mib=peer_after.rss_mib,
        )

    def _start_client(self, peer: Peer, load: Load) -> "subprocess.Popen[str]":
        command = [str(self._tools.client), "-P", str(peer.port), "-M", peer.model, *load.arguments()]
        for name, value in peer.headers.items():
            command += ["-H", f"{name}: {value}"]
        if peer.is_traced:
            command.append("-T")
        if peer.path:
            command += ["-p", peer.path]
        if peer.body is not None:
            command += ["-f", str(peer.body)]
        with pinned_to(self.cores.load):
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _finish(self, client: "subprocess.Popen[str]", peer: Peer, load: Load) -> LoadResult:
        try:
            output, complaint = client.communicate(timeout=load.warm_up_seconds + load.seconds + _END_SECONDS)
        except subprocess.TimeoutExpired as error:
            client.kill()
            client.communicate()
            raise RuntimeError(f"the load on {peer.name} does not end") from error
        result = parse_result(output)
        self.started[peer.counted] += result.started
        self.replies[peer.counted] += result.replies
        self.failed[peer.counted] += result.err + result.bad_streams
        if complaint:
            print(f"{peer.name}: {complaint[:500]}", file=sys.stderr)
        return result
