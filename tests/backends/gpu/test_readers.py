"""Which GPUs a process may use, and what is said if there is none."""

import ctypes
from types import SimpleNamespace

import pynvml
import pytest

from backends.gpu.amd_reader import AmdReader
from backends.gpu.base import DeviceIdentity
from backends.gpu.nvml import Nvml
from backends.gpu.own_processes import OwnProcesses
from backends.gpu.readers import open_readers, require_gpu, visible
from contracts.errors import ConfigurationError, Unavailable
from tests.backends.gpu.recorded_nvml import RecordedNvml

WHOLE = [DeviceIdentity(f"GPU-{letter}", index, "a GPU") for index, letter in enumerate("abc")]
SLICES = [DeviceIdentity(f"MIG-{number}", 1, "a slice", parent="GPU-b") for number in (1, 2)]
DEVICES = [WHOLE[0], WHOLE[1], *SLICES, WHOLE[2]]


def names(environment: dict[str, str]) -> list[str]:
    return [one.uuid for one in visible(DEVICES, environment)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["GPU-a", "MIG-1", "MIG-2", "GPU-c"]),  # GPU-b is cut: its slices are used in its place
        ("", []),
        ("2,0", ["GPU-c", "GPU-a"]),
        ("GPU-c", ["GPU-c"]),
        ("MIG-2", ["MIG-2"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,-1,0", ["GPU-c"]),
        (" 0 , MIG-1 ", ["GPU-a", "MIG-1"]),
    ],
)
def test_only_visible_gpus_are_used(value: str | None, expected: list[str]) -> None:
    assert names({} if value is None else {"CUDA_VISIBLE_DEVICES": value}) == expected


@pytest.mark.parametrize("value", ["7", "GPU-z", "1", "GPU-", "MIG-"])
def test_a_name_of_no_or_of_several_gpus_is_refused_with_those_there_are(value: str) -> None:
    with pytest.raises(ConfigurationError, match="GPU-a"):
        names({"CUDA_VISIBLE_DEVICES": value})


def test_a_missing_library_is_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: ctypes.CDLL(f"{name}.none"))
    with pytest.raises(Unavailable, match="NVML Shared Library Not Found; install it") as caught:
        Nvml()
    assert caught.value.error_code == "gpu_driver_missing"


def test_a_driver_that_is_not_loaded_is_a_named_error() -> None:
    with pytest.raises(Unavailable, match="Driver Not Loaded; install it") as caught:
        RecordedNvml(init=pynvml.NVML_ERROR_DRIVER_NOT_LOADED).open()
    assert caught.value.error_code == "gpu_driver_missing"


def test_without_any_gpu_the_error_names_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise Unavailable("nothing here", code="gpu_driver_missing")

    monkeypatch.setattr("backends.gpu.readers._nvidia", absent)
    monkeypatch.setattr("backends.gpu.readers.AmdReader.open", absent)
    assert open_readers() == ([], ["nothing here", "nothing here"])
    with pytest.raises(Unavailable, match="nothing here; nothing here") as caught:
        require_gpu()
    assert caught.value.error_code == "gpu_driver_missing"


class AmdSmi:
    """As `amdsmi` of ROCm 6 answers, after its documentation."""

    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=0, MEM=4)

    def __init__(self) -> None:
        self.is_shut_down = False

    def amdsmi_get_processor_handles(self):
        return ["handle"]

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"market_name": "AMD Instinct MI300X"}

    def amdsmi_get_gpu_driver_info(self, handle):
        raise RuntimeError("not supported")

    def amdsmi_get_gpu_device_uuid(self, handle):
        return "aaff74a0-0000-1000-8000-000000000000"

    def amdsmi_get_gpu_vram_usage(self, handle):
        return {"vram_total": 196_592, "vram_used": 283}

    def amdsmi_get_power_info(self, handle):
        return {"current_socket_power": "N/A", "average_socket_power": 140}

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3}

    def amdsmi_get_temp_metric(self, handle, kind, metric):
        return "N/A"

    def amdsmi_get_clock_info(self, handle, kind):
        return {"clk": 132}

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": 25, "umc_activity": 60}

    def amdsmi_get_gpu_total_ecc_count(self, handle):
        return {"correctable_count": 1, "uncorrectable_count": 0}

    def amdsmi_get_gpu_process_list(self, handle):
        return [{"pid": 100, "mem": 1024}]

    def amdsmi_shut_down(self):
        self.is_shut_down = True


def test_amd_s_gpus_are_samples_too_and_its_memory_controller_s_time_is_no_bandwidth() -> None:
    smi = AmdSmi()
    reader = AmdReader(smi, OwnProcesses((100,)), lambda: 7)
    identity, sample = reader.devices()[0], reader.look().samples[0]
    assert (identity.name, identity.vendor, identity.driver) == ("AMD Instinct MI300X", "amd", "")
    assert sample.memory_total_bytes == 196_592 << 20
    assert sample.power_watts == 140
    assert sample.energy_joules == pytest.approx(30.6)
    assert sample.temperature_celsius is None
    assert sample.kernel_activity == 0.25
    assert (sample.sm_activity, sample.dram_activity) == (None, None)
    assert (sample.other_processes, sample.is_shared) == (0, False)
    reader.keep({"another"})
    assert (reader.devices(), reader.look().samples) == ((), ())
    reader.close()
    assert smi.is_shut_down
