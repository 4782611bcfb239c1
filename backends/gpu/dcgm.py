"""Activity from NVIDIA's dcgm-exporter, for GPUs whose driver does not report it: before Hopper, or in MIG mode.

The exporter measures at its own interval (30 s unless `--collect-interval` is set), so its values may be older than the
rest of a sample.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from backends.gpu.base import DeviceIdentity, DeviceSample, GpuReader, Round
from backends.telemetry.prometheus_text import read_samples

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 0.5
_MAX_BYTES: Final = 4 << 20
_FIELDS: Final[Mapping[str, str]] = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_activity",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_activity",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_activity",
}

Fetch = Callable[[], str]


class DcgmOverlay:
    """A `GpuReader` that adds activities from the exporter's page to samples that lack them. `fetch` raises OSError."""

    def __init__(self, reader: GpuReader, fetch: Fetch) -> None:
        self._reader = reader
        self._fetch = fetch
        self._is_away = False

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """Return the GPUs and slices of the wrapped reader."""
        return self._reader.devices()

    def keep(self, uuids: Collection[str]) -> None:
        """Measure only these GPUs from now on."""
        self._reader.keep(uuids)

    def look(self) -> Round:
        """Measure, and fetch the exporter's page only if an activity is missing. Without the exporter it
        stays `None`.
        """
        found = self._reader.look()
        if all(one.sm_activity is not None and one.dram_activity is not None for one in found.samples):
            return found
        try:
            activities = activities_by_device(self._fetch())
        except (OSError, URLError, ValueError) as error:
            if not self._is_away:
                _log.warning("dcgm-exporter not read reason=%s", error)
            self._is_away = True
            return found
        self._is_away = False
        return replace(found, samples=tuple(_filled(one, activities.get(one.uuid, {})) for one in found.samples))

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def activities_by_device(page: str) -> dict[str, dict[str, float]]:
    """Return each GPU's activities (0 to 1) by UUID, from the exporter's page. MIG slices are skipped: they have the
    GPU's UUID.
    """
    found: dict[str, dict[str, float]] = {}
    for sample in read_samples(page, tuple(_FIELDS)):
        field, uuid = _FIELDS.get(sample.name), sample.labels.get("UUID")
        if field and uuid and not sample.labels.get("GPU_I_ID") and 0 <= sample.value <= 1:
            found.setdefault(uuid, {})[field] = sample.value
    return found


def fetch_page(url: str) -> Fetch:
    """Return a function that fetches `url` within half a second. It raises OSError."""

    def fetch() -> str:
        with urlopen(Request(url, headers={"Accept": "text/plain"}), timeout=_TIMEOUT_SECONDS) as answer:
            return bytes(answer.read(_MAX_BYTES)).decode("utf-8", "replace")

    return fetch


def _filled(sample: DeviceSample, activities: Mapping[str, float]) -> DeviceSample:
    return replace(
        sample,
        sm_activity=activities.get("sm_activity") if sample.sm_activity is None else sample.sm_activity,
        sm_occupancy=activities.get("sm_occupancy") if sample.sm_occupancy is None else sample.sm_occupancy,
        tensor_activity=activities.get("tensor_activity") if sample.tensor_activity is None else sample.tensor_activity,
        dram_activity=activities.get("dram_activity") if sample.dram_activity is None else sample.dram_activity,
    )
