"""NVIDIA's GPUs as samples: what cannot be measured is unknown, never zero and never something else's number."""

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from backends.gpu.base import DeviceProcess, DeviceSample
from backends.gpu.nvml import Activity
from backends.gpu.nvml_reader import NvmlReader, throttle_names
from backends.gpu.own_processes import OwnProcesses
from tests.backends.gpu.recorded_nvml import GIB, Device, RecordedNvml

NOW_NS = 1_700_000_000_000_000_000
NOW_US = NOW_NS // 1000


def processes(proc: Path, parents: dict[int, int]) -> OwnProcesses:
    """A process table in which 100 is this process."""
    for pid, parent in parents.items():
        (proc / str(pid)).mkdir()
        fields = ["S", str(parent), *["0"] * 17, str(pid * 10)]
        (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}")
    return OwnProcesses((100,), proc)


def reader_of(nvml: RecordedNvml, own: OwnProcesses | None = None) -> NvmlReader:
    return NvmlReader(nvml.open(), own, lambda: NOW_NS)


def sample_of(device: Device, own: OwnProcesses | None = None) -> DeviceSample:
    return reader_of(RecordedNvml(device), own).look().samples[0]


def test_readings_come_in_the_units_their_names_say() -> None:
    numbers = {
        "power_milliwatts": 76_543,
        "power_limit_milliwatts": 700_000,
        "energy_millijoules": 1_234_567,
        "temperature_celsius": 31,
        "memory_temperature_celsius": 40,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "throttle_reasons": 0x4,
        "ecc_corrected": 0,
        "ecc_uncorrected": 2,
        "kernel_percent": 100,
    }
    reader = reader_of(RecordedNvml(Device(numbers=numbers, activity=Activity(50.0, 12.5, None, 90.0))))
    reader.look()  # GPM measures between two looks
    (sample,) = reader.look().samples
    assert (sample.power_watts, sample.power_limit_watts, sample.energy_joules) == (76.543, 700.0, 1234.567)
    assert (sample.temperature_celsius, sample.memory_temperature_celsius) == (31, 40)
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz) == (1980, 3201)
    assert (sample.ecc_corrected, sample.ecc_uncorrected) == (0, 2)
    assert (sample.sm_activity, sample.sm_occupancy, sample.tensor_activity) == (0.5, 0.125, None)
    assert (sample.dram_activity, sample.kernel_activity) == (0.9, 1.0)
    assert (sample.memory_total_bytes, sample.memory_used_bytes, sample.memory_free_bytes) == (
        140 * GIB,
        GIB,
        139 * GIB,
    )
    assert sample.throttle_reasons == ("power_cap",)
    assert sample.at_ns == NOW_NS


def test_what_is_not_measurable_is_unknown_and_kernel_time_does_not_stand_in_for_it() -> None:
    sample = sample_of(Device(numbers={"kernel_percent": 73}))
    assert sample.kernel_activity == 0.73
    assert sample.sm_activity is None
    assert sample.dram_activity is None
    assert sample.power_watts is None
    assert sample.throttle_reasons is None


def test_what_a_device_does_not_support_is_asked_once() -> None:
    nvml = RecordedNvml(Device())
    reader = reader_of(nvml)
    for _ in range(3):
        reader.look()
    assert nvml.asked["power_milliwatts"] == 1
    assert nvml.asked["memory"] == 3


def test_what_is_dear_to_read_is_read_rarely_and_told_as_it_last_was() -> None:
    device = Device(numbers={"energy_millijoules": 1000, "power_milliwatts": 1000})
    nvml = RecordedNvml(device)
    reader = reader_of(nvml)
    energies = []
    for number in range(7):
        device.numbers["energy_millijoules"] = 1000 * (number + 1)
        energies.append(reader.look().samples[0].energy_joules)
    assert energies == [1.0] * 5 + [6.0] * 2
    assert (nvml.asked["energy_millijoules"], nvml.asked["power_milliwatts"]) == (2, 7)


def test_activity_is_that_since_the_last_look_and_not_ready_at_the_first() -> None:
    device = Device(activity=Activity(10.0, None, 101.0, 20.0))
    reader = reader_of(RecordedNvml(device))
    assert reader.look().samples[0].sm_activity is None
    sample = reader.look().samples[0]
    assert (sample.sm_activity, sample.sm_occupancy, sample.tensor_activity) == (0.1, None, None)
    device.activity = Activity(30.0, None, None, 20.0)
    assert reader.look().samples[0].sm_activity == 0.3


def test_an_idle_gpu_is_not_throttled() -> None:
    assert throttle_names(0x1) == ()
    assert throttle_names(0x1 | 0x20 | 0x40) == ("software_thermal", "hardware_thermal")


def test_a_lost_device_is_told_of_once_and_the_others_are_still_measured() -> None:
    lost = Device(uuid="GPU-lost", memory=pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
    nvml = RecordedNvml(lost, Device(uuid="GPU-well"))
    reader = reader_of(nvml)
    first, second = reader.look(), reader.look()
    assert [(fault.uuid, fault.xid, fault.scope) for fault in first.faults] == [("GPU-lost", None, "device")]
    assert second.faults == ()
    for found in (first, second):
        unwell, well = found.samples
        assert unwell == DeviceSample("GPU-lost", NOW_NS)
        assert well.memory_total_bytes == 140 * GIB


@pytest.mark.parametrize(("xid", "scope"), [(79, "device"), (31, "program"), (63, "notice"), (9999, "notice")])
def test_an_xid_says_what_is_lost(xid: int, scope: str) -> None:
    nvml = RecordedNvml(Device())
    reader = reader_of(nvml)
    nvml.faults_waiting = [(1, xid)]
    fault = reader.look().faults[0]
    assert (fault.uuid, fault.xid, fault.scope) == ("GPU-1", xid, scope)
    assert f"XID {xid}" in fault.text
    assert reader.look().faults == ()


def test_slices_are_devices_of_their_own_and_know_their_gpu() -> None:
    slices = [
        Device(
            uuid=f"MIG-{number}",
            memory=(20 * GIB, GIB, 19 * GIB),
            older_memory_only=True,
            activity=Activity(10.0 * number, None, None, None),
        )
        for number in (1, 2)
    ]
    reader = reader_of(RecordedNvml(Device(uuid="GPU-1", slices=slices)))
    assert [(one.uuid, one.parent) for one in reader.devices()] == [
        ("GPU-1", None),
        ("MIG-1", "GPU-1"),
        ("MIG-2", "GPU-1"),
    ]
    assert [one.memory_total_bytes for one in reader.look().samples] == [140 * GIB, 20 * GIB, 20 * GIB]
    assert [one.sm_activity for one in reader.look().samples[1:]] == [0.1, 0.2]
    reader.close()


def test_only_what_is_kept_is_asked_and_others_faults_keep_their_names() -> None:
    nvml = RecordedNvml(Device(uuid="GPU-1"), Device(uuid="GPU-2"))
    reader = reader_of(nvml)
    reader.keep({"GPU-2"})
    nvml.faults_waiting = [(1, 79)]
    found = reader.look()
    assert [one.uuid for one in found.samples] == ["GPU-2"]
    assert [one.uuid for one in reader.devices()] == ["GPU-2"]
    assert [one.uuid for one in found.faults] == ["GPU-1"]
    assert nvml.asked["memory"] == 1


def test_a_grandchild_is_ours_and_needs_no_question_about_time(tmp_path: Path) -> None:
    own = processes(tmp_path, {100: 1, 101: 100, 102: 101})
    nvml = RecordedNvml(Device(processes=[(102, GIB)]))
    sample = reader_of(nvml, own).look().samples[0]
    assert sample.processes == (DeviceProcess(102, GIB, True),)
    assert sample.other_processes == 0
    assert sample.is_shared is False
    assert "process_activity" not in nvml.asked


@pytest.mark.parametrize(
    ("activity", "is_shared"),
    [
        ([(300, NOW_US, 40)], True),
        ([(300, NOW_US, 0)], False),
        ([(102, NOW_US, 90)], False),  # only ours computed
        ([], False),  # nobody did, as some drivers say it
        (pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND), False),  # ... and as others do
        (pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED), True),  # it may have
    ],
)
def test_another_process_shares_the_gpu_only_while_it_computes(
    tmp_path: Path, activity: object, is_shared: bool
) -> None:
    own = processes(tmp_path, {100: 1, 102: 100, 300: 1})
    sample = sample_of(Device(processes=[(102, GIB), (300, None)], process_activity=activity), own)
    assert sample.other_processes == 1
    assert sample.is_shared is is_shared


def test_a_process_of_another_namespace_leaves_it_unknown(tmp_path: Path) -> None:
    own = processes(tmp_path, {100: 1})
    sample = sample_of(Device(processes=[(4711, GIB)]), own)
    assert sample.other_processes is None
    assert sample.is_shared is None


def test_a_number_given_to_another_process_is_looked_at_again(tmp_path: Path) -> None:
    own = processes(tmp_path, {100: 1, 200: 100})
    assert own.is_ours(200) is True
    stat = tmp_path / "200" / "stat"
    stat.write_text(stat.read_text().replace("S 100", "S 1").replace("2000", "2001"))
    assert own.is_ours(200) is False


def test_closing_gives_the_library_back() -> None:
    nvml = RecordedNvml(Device(activity=Activity(1.0, 1.0, 1.0, 1.0)))
    reader = reader_of(nvml)
    reader.look()
    reader.close()
    assert nvml.is_closed


def test_a_sample_without_processes_is_not_shared() -> None:
    sample = DeviceSample("GPU-1", 0, processes=())
    assert sample.is_shared is False
    assert replace(sample, processes=None).is_shared is None
