"""Activity out of dcgm-exporter's page, only where the driver does not tell it."""

from collections.abc import Collection

from backends.gpu.base import DeviceIdentity, DeviceSample, Round
from backends.gpu.dcgm import DcgmOverlay, activities_by_device

PAGE = """
# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",pci_bus_id="0",device="nvidia0",modelName="NVIDIA A100"} 0.75
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100"} 0.5
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0.1
DCGM_FI_PROF_DRAM_ACTIVE{gpu="1",UUID="GPU-2"} 9999
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="GPU-1"} 88
"""


class Reader:
    def __init__(self, *samples: DeviceSample) -> None:
        self.samples = samples
        self.is_closed = False

    def devices(self) -> tuple[DeviceIdentity, ...]:
        return tuple(DeviceIdentity(one.uuid, 0, "a GPU") for one in self.samples)

    def keep(self, uuids: Collection[str]) -> None:
        self.samples = tuple(one for one in self.samples if one.uuid in uuids)

    def look(self) -> Round:
        return Round(self.samples)

    def close(self) -> None:
        self.is_closed = True


class Exporter:
    def __init__(self, page: str | OSError) -> None:
        self.page = page
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if isinstance(self.page, OSError):
            raise self.page
        return self.page


def test_only_activities_of_whole_gpus_that_can_be_are_read() -> None:
    assert activities_by_device(PAGE) == {"GPU-1": {"sm_activity": 0.75, "dram_activity": 0.5}}


def test_unknown_activities_are_filled_in_and_known_ones_kept() -> None:
    reader = Reader(DeviceSample("GPU-1", 1, sm_activity=0.1), DeviceSample("GPU-2", 1))
    overlay = DcgmOverlay(reader, Exporter(PAGE))
    first, second = overlay.look().samples
    assert (first.sm_activity, first.dram_activity) == (0.1, 0.5)
    assert (second.sm_activity, second.dram_activity) == (None, None)
    assert [one.uuid for one in overlay.devices()] == ["GPU-1", "GPU-2"]
    overlay.close()
    assert reader.is_closed


def test_only_what_is_kept_is_looked_at() -> None:
    overlay = DcgmOverlay(Reader(DeviceSample("GPU-1", 1), DeviceSample("GPU-2", 1)), Exporter(PAGE))
    overlay.keep({"GPU-2"})
    assert [one.uuid for one in overlay.look().samples] == ["GPU-2"]


def test_an_exporter_is_not_asked_where_the_driver_tells_all() -> None:
    exporter = Exporter(PAGE)
    DcgmOverlay(Reader(DeviceSample("GPU-1", 1, sm_activity=0.1, dram_activity=0.2)), exporter).look()
    assert exporter.asked == 0


def test_an_exporter_that_is_away_fills_in_nothing_and_is_asked_again() -> None:
    exporter = Exporter(OSError("refused"))
    overlay = DcgmOverlay(Reader(DeviceSample("GPU-1", 1)), exporter)
    assert overlay.look().samples[0].sm_activity is None
    exporter.page = PAGE
    assert overlay.look().samples[0].sm_activity == 0.75
