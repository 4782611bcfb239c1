"""A worker and its host's meter, joined by a real socket, over a GPU whose time is handed in."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backends.engine.step_book import QueueFacts, StepBook
from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import SOCKET_VARIABLE
from backends.engine.vllm_engine.metering.meter import MeterOptions, VllmMeter
from backends.engine.vllm_engine.metering.step_splitter import WARM_UP_ID
from backends.engine.vllm_engine.metering.worker_meter import WorkerMeter
from tests.backends.engine.vllm_engine.metering.fake_gpu import FakeGpu, batch, new_request

FACTS = QueueFacts(running=0, waiting=0, kv_blocks_used=0, kv_blocks_total=100)


def fit_here():
    """Fit in a thread: a process takes half a second to start."""
    return ThreadPoolExecutor(1)


@dataclass
class Rig:
    """One engine: `ranks` workers on one clock, and the host's meter."""

    folder: Path
    ranks: int = 1
    depth: int = 1
    gpus: list[FakeGpu] = field(default_factory=list)
    workers: list[WorkerMeter] = field(default_factory=list)
    senders: list[FrameSender] = field(default_factory=list)

    def __post_init__(self):
        self.book = StepBook("e", "m", "r", "gpu0", now_ns=lambda: self.now_ns, wall_offset_ns=0)
        self.meter = VllmMeter(
            self.book, MeterOptions("m", ranks=self.ranks, directory=self.folder, make_executor=fit_here)
        )
        path = self.meter.socket_path
        self.gpus = [FakeGpu() for _ in range(self.ranks)]
        for rank, gpu in enumerate(self.gpus):
            self.senders.append(FrameSender(path, rank))
            self.workers.append(
                WorkerMeter(self.senders[rank], gpu.event, rank=rank, depth=self.depth, now_ns=gpu.time_ns)
            )

    @property
    def now_ns(self):
        return self.gpus[0].now_ns if self.gpus else 1_000_000

    def pass_time(self, ns):
        for gpu in self.gpus:
            gpu.now_ns += ns

    def launch(self, order, busy_ns=1_000_000, skew_ns=0):
        """Launch a step on every rank, rank 1 taking `skew_ns` longer; return the steps."""
        steps = []
        for rank, (gpu, worker) in enumerate(zip(self.gpus, self.workers, strict=True)):
            worker.begin(order)
            gpu.run(busy_ns // 2)
            worker.forward_done()
            gpu.run(busy_ns - busy_ns // 2 + rank * skew_ns)
            steps.append(worker.end())
        return steps

    def wait(self):
        for gpu, worker in zip(self.gpus, self.workers, strict=True):
            gpu.catch_up()
            worker.settle()

    def finish(self, *names):
        """Notify the workers who has ended, as an engine without work does."""
        for worker in self.workers:
            worker.note_idle_batch(batch(finished=names))

    def records(self, *, idle=False):
        for _ in range(100):  # a few steps each time
            self.meter.collect()
        return self.meter.take(idle=idle, facts=FACTS)

    def close(self):
        for worker in self.workers:
            worker.close()
        self.meter.close()


@pytest.fixture
def make_rig(tmp_path, monkeypatch):
    monkeypatch.setenv(SOCKET_VARIABLE, "")  # put back at the end, whatever meters make of it
    rigs: list[Rig] = []

    def make(**options):
        rigs.append(Rig(tmp_path, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig):
    return make_rig()


def request_id(number):
    """An id; 0 gives that of the host's own warm-up."""
    return (number + (1 << 64)).to_bytes(16, "big") if number else WARM_UP_ID


def name_of(number, choice=None):
    """What vLLM calls a sequence of a request of ours."""
    return ("" if choice is None else f"{choice}_") + request_id(number).hex() + "-0123abcd"


def first_of(number, prompt, computed=0, **more):
    return new_request(name_of(number), prompt, computed, **more)
