"""What a host makes of its GPUs' samples: whose time a step's was, and what a lost GPU ends."""

from collections.abc import Collection

import msgspec
import pytest

from backends.engine.base import ModelOrder
from backends.engine.device_book import device_record
from backends.engine.device_watch import DeviceWatch, start_watch
from backends.engine.engine_thread import Output
from backends.engine.placement import DeviceRoom
from backends.gpu.base import DeviceFault, DeviceIdentity, DeviceProcess, DeviceSample, Round
from backends.gpu.sampler import GpuSampler
from contracts.engine.wire import Devices, Embedded, Finished
from contracts.recording.records import DeviceRecord, GpuShare, StepRecord, decode_record
from tests.backends.engine.host_client import HostClient, StartHost, make_submit
from tests.backends.engine.sleepy_engine import GIB, Gpu, SleepyModels

OURS = DeviceProcess(1, GIB, is_ours=True)
SITS = DeviceProcess(2, GIB, is_ours=False, sm_ratio=0.0)
COMPUTES = DeviceProcess(3, GIB, is_ours=False, sm_ratio=0.2)
UNKNOWN = DeviceProcess(4, GIB, is_ours=None)
FIRST, SECOND = bytes(15) + b"\1", bytes(15) + b"\2"


def watching(lost: list[tuple[str, list[str]]] | None = None, *devices: DeviceIdentity) -> DeviceWatch:
    found = [] if lost is None else lost
    watch = DeviceWatch(lambda reason, models: found.append((reason, models)))
    watch.start(GpuSampler([], lambda one: None), devices or [DeviceIdentity("GPU-1", 0, "a GPU")])
    return watch


def look(watch: DeviceWatch, *processes: DeviceProcess, faults: tuple[DeviceFault, ...] = ()) -> None:
    watch.take(Round((DeviceSample("GPU-1", 1, processes=processes),), faults))


def step(*request_ids: bytes, device: str = "GPU-1") -> StepRecord:
    return StepRecord(
        engine="e",
        sequence=1,
        started_at_ns=1,
        busy_ns=5,
        model="m",
        devices=[device],
        confidence=0.9,
        request_ids=list(request_ids),
    )


def end(request_id: bytes) -> Finished:
    return Finished(request_id=request_id, finish_reason="stop", gpu=GpuShare(decode_ns=5, confidence=0.9))


def confidences(output: Output) -> list[float | None]:
    ends = [event.gpu.confidence for event in output.events if isinstance(event, Finished | Embedded) and event.gpu]
    return [record.confidence for record in output.steps] + ends


@pytest.mark.parametrize(
    ("processes", "is_shared", "confidence"),
    [
        ((OURS,), False, 0.9),
        ((OURS, SITS), False, 0.9),
        ((OURS, COMPUTES), True, 0.0),
        ((OURS, UNKNOWN), None, 0.9),
    ],
)
def test_times_are_not_trusted_while_somebody_else_computes(
    processes: tuple[DeviceProcess, ...], is_shared: bool | None, confidence: float
) -> None:
    watch = watching()
    look(watch, *processes)
    assert watch.is_shared is is_shared
    assert confidences(watch.marked(Output([end(FIRST)], [step(FIRST)]))) == [confidence, confidence]


def test_a_request_that_was_in_a_shared_step_ends_without_trust_and_another_with() -> None:
    watch = watching()
    look(watch, OURS, COMPUTES)
    watch.marked(Output([], [step(FIRST)]))
    look(watch, OURS)
    assert confidences(watch.marked(Output([end(FIRST), end(SECOND)], [step(SECOND)]))) == [0.9, 0.0, 0.9]
    assert confidences(watch.marked(Output([end(FIRST)], []))) == [0.9]  # nothing is remembered of it


def test_a_processor_s_steps_are_not_touched() -> None:
    watch = watching()
    look(watch, COMPUTES)
    assert confidences(watch.marked(Output([end(FIRST)], [step(FIRST, device="cpu")]))) == [0.9, 0.9]


def test_only_our_gpus_count() -> None:
    watch = watching()
    watch.take(Round((DeviceSample("GPU-9", 1, processes=(COMPUTES,)),)))
    assert watch.is_shared is False
    assert watch.facts().keys() == {"gpu_faults", "gpu_looks", "gpu_looks_cpu_seconds"}


def test_rooms_are_of_gpus_whose_memory_is_known() -> None:
    watch = watching()
    watch.take(Round((DeviceSample("GPU-1", 1, memory_total_bytes=80, memory_free_bytes=30),)))
    assert watch.rooms() == [DeviceRoom("GPU-1", 80, 30)]
    assert watch.facts()["gpu.GPU-1.memory_free_bytes"] == 30
    watch.take(Round((DeviceSample("GPU-1", 2),)))
    assert watch.rooms() == []


@pytest.mark.parametrize(("scope", "is_lost"), [("device", True), ("program", False), ("notice", False)])
def test_only_a_device_s_fault_ends_what_runs_there(scope: str, is_lost: bool) -> None:
    lost: list[tuple[str, list[str]]] = []
    watch = watching(lost)
    watch.marked(Output([], [step(FIRST)]))
    fault = DeviceFault("GPU-1", 79, "it has fallen off the bus", scope)  # type: ignore[arg-type]  # the test's
    for _ in range(2):
        look(watch, faults=(fault,))
    assert lost == ([("GPU GPU-1: XID 79, it has fallen off the bus", ["m"])] if is_lost else [])
    assert watch.facts()["gpu.GPU-1.is_lost"] is is_lost
    assert watch.faults == 2


def test_a_fault_of_the_whole_gpu_is_its_slices_and_one_of_another_is_not_ours() -> None:
    lost: list[tuple[str, list[str]]] = []
    watch = watching(lost, DeviceIdentity("MIG-1", 0, "a slice", parent="GPU-1"))
    look(watch, faults=(DeviceFault("GPU-2", 79, "gone", "device"),))
    assert lost == []
    look(watch, faults=(DeviceFault("GPU-1", 79, "gone", "device"),))
    assert len(lost) == 1


async def test_a_lost_gpu_fails_its_model_answers_its_requests_and_harms_no_other(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu())
    running = await start_host(build=models.build)
    client = await running.client()
    for name in ("on the GPU", "elsewhere"):
        running.host.models.load(ModelOrder(name, "scripted"))
        await client.ready(name)
    watch = running.host.devices
    models.gpu.watched_by(watch)
    watch.marked(
        Output(
            [], [StepRecord(engine="e", sequence=1, started_at_ns=1, busy_ns=1, model="on the GPU", devices=["cuda:0"])]
        )
    )
    submit = make_submit(1, [1] * 20, model="on the GPU", max_tokens=10**6)
    client.send(submit)
    await client.until(lambda: bool(client.deltas(submit.request_id)))
    watch.take(Round((models.gpu.sample(),), (DeviceFault("GPU-1", 79, "it has fallen off the bus", "device"),)))
    end = await client.end(submit.request_id)
    assert end.finish_reason == "error"
    assert "XID 79" in end.error_message
    assert client.states("on the GPU")[-1] == "failed"
    assert (await client.run(make_submit(2, [1] * 20, model="elsewhere"))).finish_reason == "length"
    facts = (await client.call("stats")).facts
    assert facts["gpu.GPU-1.is_lost"] is True


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["GPU-2"], ("GPU-2",)),
        (["cuda"], ("GPU-1",)),
        (["cuda:1", "cuda:0"], ("GPU-2", "GPU-1")),
        (["cuda:7"], ()),
        (["cpu"], ()),
        ([], ()),
    ],
)
def test_a_model_is_on_the_gpus_its_records_name(devices: list[str], expected: tuple[str, ...]) -> None:
    watch = watching(None, *(DeviceIdentity(f"GPU-{number}", number, "a GPU") for number in (1, 2)))
    watch.marked(Output([], [msgspec.structs.replace(step(FIRST), devices=devices)]))
    assert watch.devices_of("m") == expected
    assert watch.devices_of("another") == ()


def test_a_lost_gpu_ends_only_the_models_that_are_on_it() -> None:
    lost: list[tuple[str, list[str]]] = []
    watch = watching(lost, *(DeviceIdentity(f"GPU-{number}", number, "a GPU") for number in (1, 2)))
    for model, device in (("a", "GPU-1"), ("b", "cuda:1"), ("c", "cpu")):
        watch.marked(Output([], [msgspec.structs.replace(step(FIRST), model=model, devices=[device])]))
    look(watch, faults=(DeviceFault("GPU-2", 79, "gone", "device"),))
    assert [models for _, models in lost] == [["b"]]


async def test_stats_tell_of_the_gpus(start_host: StartHost) -> None:
    running = await start_host("scripted")
    client = await running.client()
    Gpu(processes=(OURS, SITS)).watched_by(running.host.devices)
    facts = (await client.call("stats")).facts
    assert facts["gpu.GPU-1.memory_total_bytes"] == 80 * GIB
    assert facts["gpu.GPU-1.other_processes"] == 1
    assert facts["gpu.GPU-1.is_shared"] is False
    assert facts["gpu.GPU-1.sm_activity"] is None


@pytest.mark.parametrize(
    ("processes", "held"),
    [
        ((), 0),
        ((OURS, OURS, SITS), 2 * GIB),
        ((OURS, DeviceProcess(9, None, is_ours=True)), None),
    ],
)
def test_what_our_processes_hold_is_known_where_the_driver_tells_it(
    processes: tuple[DeviceProcess, ...], held: int | None
) -> None:
    watch = watching()
    assert watch.held_bytes() is None
    look(watch, *processes)
    assert watch.held_bytes() == held


def records_of(client: HostClient) -> list[DeviceRecord]:
    found = [decode_record(packed) for message in client.of(Devices) for packed in message.records]
    assert all(isinstance(one, DeviceRecord) for one in found)
    return found  # type: ignore[return-value]  # checked above


async def test_looks_go_as_records_to_the_one_gateway_that_takes_steps_and_wants_them(start_host: StartHost) -> None:
    running = await start_host()
    watch = running.host.devices
    gpu = Gpu(processes=(OURS, COMPUTES))
    gpu.watched_by(watch)  # nobody is there to take it: a hole
    first = await running.client("first", wants_devices=True)
    second = await running.client("second", wants_devices=True)
    watch.take(Round((gpu.sample(),), (DeviceFault("GPU-1", 31, "a program's", "program"),)))
    gpu.tell(watch)
    await first.until(lambda: len(records_of(first)) == 2)
    (look, after) = records_of(first)
    assert (look.host, look.replica, look.device) == (running.host.engine, running.host.settings.replica, "GPU-1")
    assert (look.sequence, after.sequence) == (2, 3)
    assert (look.xid, after.xid) == (31, None)
    assert (look.memory_total_bytes, look.other_processes, look.is_shared) == (80 * GIB, 1, True)
    assert (look.sm_activity, look.throttle_bits, look.power_watts) == (None, None, None)
    await second.call("health")
    assert records_of(second) == []


async def test_a_gateway_that_does_not_ask_for_looks_gets_none(start_host: StartHost) -> None:
    running = await start_host()
    client = await running.client()
    Gpu().watched_by(running.host.devices)
    await client.call("health")
    assert client.of(Devices) == []


def test_what_throttles_is_kept_as_the_driver_s_bits() -> None:
    identity = DeviceIdentity("MIG-1", 2, "a slice", parent="GPU-1")
    sample = DeviceSample("MIG-1", 7, throttle_reasons=("power_cap", "hardware_thermal"))
    record = device_record(identity, sample, host="h", sequence=1)
    assert (record.throttle_bits, record.parent, record.device_index, record.at_ns) == (0x44, "GPU-1", 2, 7)
    assert (
        device_record(identity, DeviceSample("MIG-1", 7, throttle_reasons=()), host="h", sequence=1).throttle_bits == 0
    )


class OneGpu:
    """A driver with one GPU."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_kept = True

    def devices(self) -> tuple[DeviceIdentity, ...]:
        return (DeviceIdentity("GPU-1", 0, "a GPU"),)

    def keep(self, uuids: Collection[str]) -> None:
        self.is_kept = "GPU-1" in uuids

    def look(self) -> Round:
        assert self.is_kept
        return Round((DeviceSample("GPU-1", 1, memory_total_bytes=80, memory_free_bytes=30, processes=()),))

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("visible", "is_watched"), [(None, True), ("0", True), ("GPU-1", True), ("-1", False), ("GPU-7", False)]
)
async def test_a_host_watches_the_gpus_it_may_use_and_starts_without_any(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, is_watched: bool
) -> None:
    reader = OneGpu()
    monkeypatch.setattr("backends.engine.device_watch.open_readers", lambda: ([reader], ["no AMD"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    watch = DeviceWatch(lambda reason, models: None)
    start_watch(watch)
    assert reader.is_kept is is_watched
    if is_watched:
        await watch.refresh()
    assert bool(watch.rooms()) is is_watched
    watch.stop()
    assert reader.is_closed


async def test_a_machine_without_a_driver_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.engine.device_watch.open_readers", lambda: ([], ["no driver"]))
    watch = DeviceWatch(lambda reason, models: None)
    start_watch(watch, "http://127.0.0.1:9/metrics")
    await watch.refresh()
    assert (watch.facts(), watch.rooms(), watch.is_shared) == ({}, [], False)
    watch.stop()


def test_one_who_computes_now_and_then_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = watching()
    caplog.set_level("INFO", logger="backends.engine.device_watch")
    for _ in range(3):
        look(watch, OURS, COMPUTES)
        for _ in range(59):
            look(watch, OURS)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    look(watch, OURS)
    look(watch, OURS)
    assert [record.message for record in caplog.records][1:] == ["no other process uses the GPU"]
