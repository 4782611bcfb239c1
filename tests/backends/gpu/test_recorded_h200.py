"""What an H200's driver answered, read as samples: idle, a second later, and just after matrix products."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.gpu.base import DeviceSample
from backends.gpu.nvml import Activity
from backends.gpu.nvml_reader import NvmlReader
from tests.backends.gpu.recorded_nvml import Device, RecordedNvml, answer

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / "h200.json").read_text())
IDLE, LATER, BUSY = range(3)


def recorded(number: int) -> RecordedNvml:
    row = {name: answer({"answer": value}) for name, value in RECORDED["answers"][number].items()}
    activity = row["activity"]
    device = Device(
        uuid=row["uuid"],
        name=row["name"],
        memory=row["memory"],
        numbers={name: answer({"answer": value}) for name, value in row["numbers"].items()},
        processes=row["processes"],
        process_activity=row["process_activity"],
        activity=Activity(**activity) if isinstance(activity, dict) else activity,
    )
    return RecordedNvml(device, driver=RECORDED["driver"])


def sample(number: int) -> DeviceSample:
    reader = NvmlReader(recorded(number).open())
    if number != IDLE:
        reader.look()  # GPM measures between two looks
    return reader.look().samples[0]


def test_the_device_is_known_by_its_uuid() -> None:
    identity = NvmlReader(recorded(IDLE).open()).devices()[0]
    assert identity.uuid.startswith("GPU-")
    assert (identity.name, identity.vendor, identity.driver, identity.parent) == (
        "NVIDIA H200",
        "nvidia",
        "580.159.04",
        None,
    )


def test_the_first_look_has_no_activity_yet_and_all_else() -> None:
    found = sample(IDLE)
    assert (found.sm_activity, found.dram_activity, found.tensor_activity) == (None, None, None)
    assert found.kernel_activity == 0.0
    assert found.power_watts == pytest.approx(77.71)
    assert found.energy_joules == pytest.approx(3383.524)
    assert found.memory_total_bytes == 150_754_820_096
    assert found.throttle_reasons == ()
    assert (found.other_processes, found.is_shared) == (0, False)


def test_the_second_look_of_an_idle_gpu_measures_nothing_rather_than_not_knowing() -> None:
    found = sample(LATER)
    assert found.sm_activity == 0.0
    assert found.dram_activity is not None and 0 < found.dram_activity < 1e-5


def test_matrix_products_keep_the_multiprocessors_busy_and_the_memory_not() -> None:
    found = sample(BUSY)
    assert found.sm_activity == pytest.approx(0.7085, abs=1e-4)
    assert found.tensor_activity == pytest.approx(0.6876, abs=1e-4)
    assert found.dram_activity == pytest.approx(0.1405, abs=1e-4)


def test_an_illegal_access_is_the_program_s_fault_and_the_gpu_s_no_end() -> None:
    nvml = recorded(IDLE)
    reader = NvmlReader(nvml.open())
    nvml.faults_waiting = [(1, RECORDED["fault"])]
    fault = reader.look().faults[0]
    assert (fault.xid, fault.scope) == (31, "program")
