"""The ring in C reports the same as the code in Python, for any batches; over a driver without a GPU."""

import ctypes
import logging
import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.step_book import StepBook
from backends.engine.vllm_engine.metering import step_ring
from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import SOCKET_VARIABLE
from backends.engine.vllm_engine.metering.meter import MeterOptions, VllmMeter
from backends.engine.vllm_engine.metering.step_ring import load_ring_module
from backends.engine.vllm_engine.metering.worker_meter import WorkerMeter
from tests.backends.engine.vllm_engine.metering.conftest import FACTS, first_of, fit_here, name_of, request_id
from tests.backends.engine.vllm_engine.metering.fake_gpu import FakeGpu, batch, new_request

pytestmark = pytest.mark.skipif(
    not shutil.which("cc") or not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
    reason="needs a C compiler and Python's headers",
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    path = tmp_path_factory.mktemp("driver") / "fake_driver.so"
    source = Path(__file__).with_name("fake_driver.c")
    subprocess.run(["cc", "-w", "-fPIC", "-shared", str(source), "-o", str(path)], check=True)
    return path


@pytest.fixture(scope="session")
def module(driver):
    found = load_ring_module(str(driver))
    assert found is not None
    return found


class Told:
    """A sender that keeps all it is given."""

    dropped = 0
    has_unsent = False

    def __init__(self):
        self.steps, self.begun, self.ended = [], [], []

    def add(self, begun, steps, ended):
        self.begun += begun
        self.steps += steps
        self.ended += ended

    def flush(self, in_flight):
        """Keep them."""

    def close(self):
        """Keep them."""


class Worker:
    """Asks a meter as the worker does."""

    def __init__(self, module=None):
        told: Any = Told()
        self.told = told
        if module is None:
            gpu = FakeGpu()
            self.meter = WorkerMeter(told, gpu.event, depth=2, now_ns=time.monotonic_ns)
        else:
            self.meter = WorkerMeter(told, module.make_event, depth=2, ring=module.ring(0), stream=0)
        self.ring_steps = 0

    def run(self, order, busy_ns=0):
        ring = self.meter.ring
        if not order.total_num_scheduled_tokens:
            self.meter.note_idle_batch(order)
        elif ring is not None and ring.begin(order):
            self.ring_steps += 1
            until_ns = time.monotonic_ns() + busy_ns
            while time.monotonic_ns() < until_ns:
                pass
            assert ring.end()
        else:
            self.meter.begin(order)
            self.meter.launched()
            assert self.meter.end() is not None

    def steps(self):
        return [step for told in self.told.steps for step in told.each()]

    def rows(self):
        """All that is told of each step but its time; what is told by reference is written out."""
        self.meter.settle()
        found: list[Any] = []
        whole: Any = None
        for step in self.steps():
            if step.again:
                whole = [whole[0], [at + 1 for at in whole[1]], *whole[2:]]
            else:
                whole = [step.keys, step.context, step.scheduled, step.phases, step.discarded, step.accepted]
            found.append((step.number, *map(tuple, whole)))
        return found


def decode(at, names=("a",), **more):
    return batch(running=[(name, at) for name in names], counts=dict.fromkeys(names, 1), **more)


@pytest.fixture
def worker(module):
    one = Worker(module)
    one.run(batch([new_request("a", 8)], counts={"a": 8}))
    for at in (8, 9):
        one.run(decode(at))
    assert one.ring_steps == 0
    return one


def test_a_step_like_the_one_before_goes_through_the_ring_until_an_anchor_is_due(worker):
    for at in range(10, 10 + 64):
        worker.run(decode(at))
    assert worker.ring_steps == 64
    worker.run(decode(74))
    assert worker.ring_steps == 64
    worker.run(decode(75))
    assert worker.ring_steps == 65
    assert [row[:3] for row in worker.rows()][2:] == [(at - 6, (1,), (at,)) for at in range(9, 76)]


def test_a_step_in_the_ring_lasts_from_its_launch_to_its_event(worker):
    began_ns = time.monotonic_ns()
    for at in range(10, 30):
        worker.run(decode(at), busy_ns=100_000)
    worker.meter.settle()
    ended_ns = time.monotonic_ns()
    steps = worker.steps()[-20:]
    assert all(one.busy_ns > 50_000 and one.forward_ns is None for one in steps)
    assert all(a.started_ns + a.busy_ns <= b.started_ns for a, b in zip(steps, steps[1:], strict=False))
    assert began_ns <= steps[0].started_ns and steps[-1].started_ns + steps[-1].busy_ns <= ended_ns


@pytest.mark.parametrize(
    "order",
    [
        decode(11),
        decode(10, finished=["b"]),
        decode(10, drafts={"a": [1]}),
        decode(10, encoder={"a": [0]}),
        decode(10, resumed=["a"]),
        decode(10, names=("b",)),
        decode(10, names=("a", "b")),
        batch(running=[("a", 10)], counts={"a": 2}),
        batch([new_request("b", 1)], [("a", 10)], {"a": 1, "b": 1}),
        SimpleNamespace(total_num_scheduled_tokens=1),
        SimpleNamespace(),
        None,
    ],
)
def test_a_step_unlike_the_one_before_does_not(worker, order):
    assert worker.meter.ring.begin(order) is False
    assert worker.meter.ring.begin(decode(10)) is False  # from then on Python looks at each


def test_none_is_taken_while_one_is_open_or_no_slot_is_left(module):
    ring = module.make_ring(2, 0)
    ring.await_like(["a"], 10, 9, 10**12)
    assert ring.begin(decode(10)) is True
    assert ring.begin(decode(11)) is False
    assert ring.end() is True and ring.end() is False
    ring.await_like(["a"], 11, 9, 10**12)
    assert ring.begin(decode(11)) is True and ring.end() is True
    ring.await_like(["a"], 12, 9, 10**12)
    assert ring.begin(decode(12)) is False
    first = module.make_event()
    first.record(0)
    assert ring.read(first, 5, 10**19 // 2, 9) == ([], None, 5)
    assert ring.take() == 2 and ring.take() == 0
    times, last, ended_ns = ring.read(first, 5, 10**18, 9)
    assert len(times) == 4 and times[2] + times[3] == ended_ns
    ring.await_like(["a"], 12, 9, 10**12)
    assert ring.begin(decode(12)) is True and ring.end() is True
    ring.await_like(["a"], 13, 9, 10**12)
    assert ring.begin(decode(13)) is False  # the last event that was read is what the next one's time is told from
    ring.free()
    ring.await_like(["a"], 13, 9, 10**12)
    assert ring.begin(decode(13)) is True


@pytest.mark.parametrize(("steps", "nanoseconds", "taken"), [(0, 10**12, False), (1, 10**12, True), (1, 0, False)])
def test_a_ring_takes_so_many_steps_and_so_long(module, steps, nanoseconds, taken):
    ring = module.make_ring(2, 0)
    ring.await_like(["a"], 10, steps, nanoseconds)
    assert ring.begin(decode(10)) is taken


def test_a_step_that_failed_to_launch_is_forgotten(worker):
    assert worker.meter.ring.begin(decode(10))
    worker.meter.cancel()
    worker.run(decode(10))
    assert [row[0] for row in worker.rows()] == [1, 2, 3, 4]


def test_steps_that_the_gpu_has_not_passed_are_not_told(worker, driver):
    is_behind = ctypes.c_int.in_dll(ctypes.CDLL(str(driver)), "is_behind")
    for at in range(10, 20):
        worker.run(decode(at))
    is_behind.value = 1
    try:
        assert len(worker.rows()) < 13
    finally:
        is_behind.value = 0
    assert len(worker.rows()) == 13


def test_what_the_driver_refuses_is_said(worker, driver):
    fails = ctypes.c_int.in_dll(ctypes.CDLL(str(driver)), "fails")
    assert worker.meter.ring.begin(decode(10))
    fails.value = 719
    try:
        with pytest.raises(RuntimeError, match="cuEventRecord failed with CUDA error 719"):
            worker.meter.ring.end()
        with pytest.raises(RuntimeError, match="cuEventQuery failed with CUDA error 719"):
            worker.meter.settle()
    finally:
        fails.value = 0


orders = st.lists(
    st.one_of(
        st.tuples(st.just("decode"), st.integers(1, 90)),
        st.tuples(st.just("begin"), st.integers(1, 40)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.tuples(st.just("dummy"), st.just(0)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=40)
@given(orders)
def test_both_ways_tell_the_same_of_any_batches(module, told):
    workers = [Worker(), Worker(module)]
    running: dict[str, int] = {}
    finished: list[str] = []
    number = 0

    def run(order):
        for one in workers:
            one.run(order)

    for what, value in told:
        if what == "begin":
            number += 1
            name = f"s{number}"
            counts = {name: value, **dict.fromkeys(running, 1)}
            run(batch([new_request(name, value)], list(running.items()), counts, finished=finished))
            running = {one: at + 1 for one, at in running.items()} | {name: value}
            finished = []
        elif what == "decode" and running:
            for _ in range(value):
                run(batch(running=list(running.items()), counts=dict.fromkeys(running, 1), finished=finished))
                running, finished = {one: at + 1 for one, at in running.items()}, []
        elif what == "end" and running:
            name = list(running)[value % len(running)]
            del running[name]
            finished.append(name)
            if not running:
                run(batch(finished=finished))
                finished = []
        elif what == "lose" and running:  # preempted: computed again from its beginning, as one the engine resumes
            name = list(running)[value % len(running)]
            at = running.pop(name)
            counts = {name: at, **dict.fromkeys(running, 1)}
            order = batch([new_request(name, 1, prefill=at)], list(running.items()), counts, finished=finished)
            run(order)
            running = {one: place + 1 for one, place in running.items()} | {name: at}
            finished = []
        elif what == "dummy":
            for one in workers:
                one.meter.begin(None)
                one.meter.end()
        elif what == "settle":
            for one in workers:
                one.meter.settle()
    slow, fast = workers
    assert slow.rows() == fast.rows()
    assert (slow.told.begun, slow.told.ended) == (fast.told.begun, fast.told.ended)


def test_every_rank_s_runs_become_whole_records_at_the_host(module, tmp_path, monkeypatch):
    monkeypatch.setenv(SOCKET_VARIABLE, "")  # put back at the end
    host = VllmMeter(
        StepBook("e", "m", "r", "gpu0"), MeterOptions("m", ranks=2, directory=tmp_path, make_executor=fit_here)
    )
    senders = [FrameSender(host.socket_path, rank) for rank in (0, 1)]
    for sender in senders:
        sender.send_with(module.send)
    workers = [
        WorkerMeter(sender, module.make_event, rank=rank, depth=2, ring=module.ring(0), stream=0)
        for rank, sender in enumerate(senders)
    ]
    host.queue(time.monotonic_ns(), runnable=True)
    host.begin(request_id(1), "acme", 8)
    for at in range(400):
        order = decode(7 + at, names=(name_of(1),)) if at else batch([first_of(1, 8)], counts={name_of(1): 8})
        for worker in workers:
            assert worker.ring is not None
            if not worker.ring.begin(order):
                worker.begin(order)
                worker.launched()
            assert worker.ring.end() or worker.end() is not None
        host.collect()
    for worker in workers:
        worker.note_idle_batch(batch(finished=[name_of(1)]))
    for _ in range(100):
        host.collect()
    assert host.is_settled(request_id(1))
    records = host.take(idle=False, facts=FACTS)
    for worker in workers:
        worker.close()
    host.close()
    assert [one.kind for one in records] == ["idle"] + ["step"] * 400  # nothing ran before the first
    del records[0]
    assert [one.context for one in records] == [[0], *([7 + at] for at in range(1, 400))]
    assert all(one.rank_skew_ns is not None and sum(one.gpu_ns) == one.busy_ns for one in records)
    assert {tuple(one.tenants) for one in records} == {("acme",)}


def test_a_datagram_is_sent_at_once_or_refused(module, tmp_path):
    path = tmp_path / "s"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as at,
    ):
        end.bind(str(path))
        module.send(at.fileno(), b"told", str(path))
        assert end.recv(16) == b"told"
        with pytest.raises(OSError):
            module.send(at.fileno(), b"told", str(tmp_path / "nowhere"))
        with pytest.raises(OSError, match="too long"):
            module.send(at.fileno(), b"told", "/" + "x" * 200)


@pytest.mark.parametrize(("change", "says"), [("tool", "no C compiler"), ("source", "error"), ("driver", "nowhere")])
def test_what_cannot_be_built_is_said_and_done_without(change, says, monkeypatch, tmp_path, caplog):
    if change == "tool":
        monkeypatch.setattr("shutil.which", lambda name: None)
    if change == "source":
        (tmp_path / "wrong.c").write_text("int main(")
        monkeypatch.setattr(step_ring, "SOURCE", tmp_path / "wrong.c")
    with caplog.at_level(logging.WARNING):
        assert load_ring_module("/nowhere.so") is None
    assert "slow path" in caplog.text and says in caplog.text
